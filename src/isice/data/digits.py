"""Handwritten digits of 8×8 pixels with one channel, shipped with scikit-learn."""

import numpy as np
import torch
from torch.nn.functional import interpolate

from ..config import DataConfig
from .layouts import DatasetSources
from .sources import TensorSource

# scikit-learn defines no test split. This one is fixed and ignores the seeds of a config.
_TEST_SIZE, _TEST_SEED = 450, 0


def load_digits(config: DataConfig) -> DatasetSources:
    """Load 1347 training and 450 test images, stratified by class, with pixels in [0, 1].

    Another ``image_size`` than 8 resizes them by bilinear interpolation.
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
    splits = [TensorSource(images[rows], targets[rows]) for rows in (train, test)]
    return DatasetSources(tuple("0123456789"), *splits)
