"""Textures as a dataset that needs no network: channels of equal mean and variance, told apart by covariance only."""

from ..config import DataConfig
from .layouts import Loaded
from .sources import TensorSource
from .synthetic import make_textures

N_CLASSES, CHANNELS, SIZE = 4, 12, 14
TRAIN_SIZE, TEST_SIZE = 2000, 1000

# Other images, same classes.
_TRAIN_SEED, _TEST_SEED = 1, 2


def load_textures(config: DataConfig, *, family: str = "correlation") -> Loaded:
    """Training and test textures of one family, always the same; ``image_size`` is the side at which they are drawn.

    Averages over positions of the channels themselves say nothing about the class. A network with a nonlinearity before
    the average can still see it: it is the head on these channels that is blind, not every network.

    Example:
        >>> loaded = load_textures(DataConfig(name="textures"))
        >>> loaded.train[0].shape, len(loaded.test)
        (torch.Size([12, 14, 14]), 1000)
    """
    parts = [
        TensorSource(
            *make_textures(
                count,
                family=family,
                n_classes=N_CLASSES,
                channels=CHANNELS,
                size=config.image_size or SIZE,
                seed=seed,
            )
        )
        for count, seed in ((TRAIN_SIZE, _TRAIN_SEED), (TEST_SIZE, _TEST_SEED))
    ]
    return Loaded(tuple(f"texture {number}" for number in range(N_CLASSES)), *parts)
