"""Generated textures as a dataset: the classes differ only in the covariance of the channels."""

from ..config import DataConfig
from .layouts import Loaded
from .sources import TensorSource
from .synthetic import make_textures

N_CLASSES, CHANNELS, SIZE = 4, 12, 14
TRAIN_SIZE, TEST_SIZE = 2000, 1000

_TRAIN_SEED, _TEST_SEED = 1, 2


def load_textures(config: DataConfig, *, family: str = "correlation") -> Loaded:
    """Generate the training and test textures of one family, at ``image_size``, with fixed seeds.

    The mean of each channel carries no information about the class, so ``gap`` on the raw channels
    cannot classify them. A network with a nonlinearity before the mean can.
    """
    shape = {"n_classes": N_CLASSES, "channels": CHANNELS, "size": config.image_size or SIZE}
    splits = [
        TensorSource(*make_textures(count, family=family, seed=seed, **shape))
        for count, seed in ((TRAIN_SIZE, _TRAIN_SEED), (TEST_SIZE, _TEST_SEED))
    ]
    return Loaded(tuple(f"texture {number}" for number in range(N_CLASSES)), *splits)
