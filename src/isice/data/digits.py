"""Handwritten digits, 8×8 pixels, one channel: real data that ships with scikit-learn and needs no network."""

import numpy as np
import torch
from torch.nn.functional import interpolate

from ..config import DataConfig
from .layouts import Loaded
from .sources import TensorSource

# The copy in scikit-learn has no test part of its own: this one is fixed, whatever the seeds of config and run.
_TEST_SIZE, _TEST_SEED = 450, 0


def load_digits(config: DataConfig) -> Loaded:
    """The training (1347) and test (450) part, stratified by class, pixels in [0, 1].

    ``image_size`` other than 8 enlarges the pictures by bilinear interpolation.

    Example:
        >>> loaded = load_digits(DataConfig(image_size=16))
        >>> loaded.train[0].shape, len(loaded.test)
        (torch.Size([1, 16, 16]), 450)
    """
    from sklearn.datasets import load_digits as sklearn_digits
    from sklearn.model_selection import train_test_split

    raw = sklearn_digits()
    images = torch.from_numpy(raw.images / 16.0).float().unsqueeze(1)
    size = config.image_size
    if size not in (None, images.shape[-1]):
        images = interpolate(images, size=(size, size), mode="bilinear", align_corners=False)
    targets = torch.from_numpy(raw.target).long()
    train, test = train_test_split(
        np.arange(len(targets)), test_size=_TEST_SIZE, random_state=_TEST_SEED, stratify=raw.target
    )
    parts = [TensorSource(images[rows], targets[rows]) for rows in (train, test)]
    return Loaded(tuple("0123456789"), *parts)
