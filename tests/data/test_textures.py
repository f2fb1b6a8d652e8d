"""The textures as a dataset: what is equal in all classes, and what is not."""

import functools

import pytest
import torch
from sklearn.linear_model import LogisticRegression

from isice.config import DataConfig
from isice.data import load_splits

NAMES = ["textures", "textures_partial"]


@functools.cache
def load(name: str):
    splits = load_splits(DataConfig(name=name))
    return [(torch.stack([image for image, _ in part]), part.targets) for part in (splits.train, splits.test)]


def by_class(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Channel values (K, C, number) of each class."""
    return torch.stack([images[labels == k].movedim(1, 0).flatten(1) for k in range(4)])


@pytest.mark.parametrize("name", NAMES)
def test_same_mean_and_variance_in_every_channel_of_every_class(name: str):
    values = by_class(*load(name)[0])
    # 500 smooth fields of 196 positions: a mean has a standard error of about 0.01.
    assert values.mean(-1).abs().max() < 0.05
    assert (values.var(-1) - 1).abs().max() < 0.05


def test_partial_has_nearly_equal_covariances_and_other_partial_correlations():
    values = by_class(*load("textures_partial")[0]).double()
    covariances = torch.stack([torch.cov(v) for v in values])
    precision = torch.linalg.inv(covariances)
    scale = precision.diagonal(dim1=1, dim2=2).rsqrt()
    partial = -precision * scale[:, :, None] * scale[:, None]
    pairs = [(i, j) for i in range(4) for j in range(i)]
    assert max((covariances[i] - covariances[j]).abs().max() for i, j in pairs) < 0.12 + 0.05
    assert min((partial[i] - partial[j]).abs().max() for i, j in pairs) > 0.5


def features(images: torch.Tensor, kind: str) -> torch.Tensor:
    flat = images.flatten(2)
    if kind == "mean":
        return flat.mean(-1)
    if kind == "variance":
        return flat.var(-1)
    centred = flat - flat.mean(-1, keepdim=True)
    cov = centred @ centred.mT / flat.shape[-1]
    matrix = torch.linalg.inv(cov) if kind == "precision" else cov
    rows, columns = torch.triu_indices(12, 12)
    return matrix[:, rows, columns]


def accuracy(name: str, kind: str) -> float:
    (train, labels), (test, test_labels) = load(name)
    x, y = features(train, kind), features(test, kind)
    mean, std = x.mean(0), x.std(0)
    model = LogisticRegression(max_iter=300).fit(((x - mean) / std).numpy(), labels.numpy())
    return model.score(((y - mean) / std).numpy(), test_labels.numpy())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["mean", "variance"])
def test_first_order_is_blind(name: str, kind: str):
    # Chance is 0.25, with a standard error of 0.014 for 1000 images.
    assert accuracy(name, kind) < 0.32


def test_second_order_sees():
    assert accuracy("textures", "covariance") > 0.9
    assert accuracy("textures_partial", "precision") > 0.9


def test_images_are_new_in_test_and_the_same_in_every_run():
    (train, labels), (test, _) = load("textures")
    again = load_splits(DataConfig(name="textures")).train.source.images
    assert torch.equal(train, again)
    assert not torch.equal(train[:1000], test)
    assert labels.bincount().tolist() == [500] * 4


def test_image_size():
    assert load_splits(DataConfig(name="textures", image_size=9)).test[0][0].shape == (12, 9, 9)
