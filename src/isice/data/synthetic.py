"""① Gaussian textures whose classes differ only in the covariance of the channels.

Every channel of a class has mean zero and variance one: first-order pooling cannot separate them.
"""

import torch
from torch import Tensor

from .._checks import check_choice, check_int, check_number
from ..config import DataConfig
from .layouts import DatasetSources
from .sources import TensorSource

FAMILIES = ("correlation", "partial")
# The datasets "textures" and "textures_partial".
N_CLASSES, CHANNELS, SIZE = 4, 12, 14
TRAIN_SIZE, TEST_SIZE = 2000, 1000
_TRAIN_SEED, _TEST_SEED = 1, 2

# Correlation of paired channels, and the share of the variance that the pairs explain. In "partial"
# two factors common to all classes explain the rest and dominate the covariance.
_PAIR_CORRELATION = 0.8
_PAIRED_SHARE = {"correlation": 1.0, "partial": 0.15}


def texture_covariances(
    family: str = "correlation", *, n_classes: int = 4, channels: int = 12, seed: int = 0
) -> Tensor:
    """Return the channel covariance of each class, with unit diagonal.

    The channels form pairs, different in each class, with correlation 0.8. In the family
    ``"partial"`` two strong factors, equal in all classes, are added: the covariances are nearly
    equal (entries differ by at most 0.12), the partial correlations are not. Covariances cannot be
    exactly equal, because they determine the partial correlations.
    """
    check_choice("texture_covariances", "family", family, FAMILIES)
    check_int("texture_covariances", "n_classes", n_classes, minimum=2)
    check_int("texture_covariances", "channels", channels, minimum=4)
    if channels % 2:
        raise ValueError(f"texture_covariances: expected an even number of channels to pair, got {channels}.")
    generator = torch.Generator().manual_seed(seed)
    factors = torch.randn(channels, 2, generator=generator)
    factors = factors / factors.norm(dim=1, keepdim=True)
    paired = torch.stack([_paired(channels, generator) for _ in range(n_classes)])
    share = _PAIRED_SHARE[family]
    covariances: Tensor = share * paired + (1 - share) * (factors @ factors.mT)
    return covariances


def _paired(channels: int, generator: torch.Generator) -> Tensor:
    """Return the correlation matrix of a random perfect matching of the channels."""
    left, right = torch.randperm(channels, generator=generator).view(2, -1)
    matrix = torch.eye(channels)
    matrix[left, right] = matrix[right, left] = _PAIR_CORRELATION
    return matrix


def gaussian_fields(covariances: Tensor, *, size: int, smoothness: float = 0.5, seed: int = 0) -> Tensor:
    """Draw one Gaussian field with mean zero on a torus for each channel covariance (B, C, C).

    ``smoothness`` is the weight of neighbours in a 3×3 blur that keeps the variance; 0 is white
    noise.
    """
    check_int("gaussian_fields", "size", size, minimum=3)
    check_number("gaussian_fields", "smoothness", smoothness)
    batch, channels = covariances.shape[:2]
    noise = torch.randn(batch, channels, size, size, generator=torch.Generator().manual_seed(seed))
    for axis in (-2, -1):
        noise = noise + smoothness * (noise.roll(1, axis) + noise.roll(-1, axis))
    noise = noise / (1 + 2 * smoothness**2)
    return torch.einsum("bij,bjhw->bihw", torch.linalg.cholesky(covariances), noise)


def make_textures(
    n_images: int, *, family: str = "correlation", n_classes: int = 4, channels: int = 12, size: int = 14, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Draw textures and their labels, which cycle through the classes.

    ``seed`` is that of the images; the classes are always the same.

    Example:
        >>> images, labels = make_textures(8)
        >>> images.shape, labels.tolist()
        (torch.Size([8, 12, 14, 14]), [0, 1, 2, 3, 0, 1, 2, 3])
    """
    check_int("make_textures", "n_images", n_images, minimum=1)
    covariances = texture_covariances(family, n_classes=n_classes, channels=channels)
    labels = torch.arange(n_images) % n_classes
    return gaussian_fields(covariances[labels], size=size, seed=seed), labels


def load_textures(config: DataConfig, *, family: str = "correlation") -> DatasetSources:
    """Generate the training and test textures of one family, at ``image_size``, with fixed seeds.

    The mean of each channel carries no information about the class, so ``gap`` on the raw channels
    cannot classify them. A network with a nonlinearity before the mean can.
    """
    shape = {"n_classes": N_CLASSES, "channels": CHANNELS, "size": config.image_size or SIZE}
    splits = [
        TensorSource(*make_textures(count, family=family, seed=seed, **shape))
        for count, seed in ((TRAIN_SIZE, _TRAIN_SEED), (TEST_SIZE, _TEST_SEED))
    ]
    return DatasetSources(tuple(f"texture {number}" for number in range(N_CLASSES)), *splits)
