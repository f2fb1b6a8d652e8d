"""Every pooling learns, in one epoch, classes that differ in second-order structure only.

Global average pooling must not learn them: mean and variance of every channel are the same
in all classes, and the test checks that too, so a texture that leaked first-order
information would be noticed.
"""

import functools

import pytest
import torch
from torch import Tensor, nn

from isice._specs import format_spec
from isice.data.synthetic import make_textures
from isice.models import Network, initialize
from isice.pooling import Pooling, create_pooling, list_poolings, pooling_class

CLASSES, CHANNELS, TEST_IMAGES = 4, 12, 256
CHANCE = 1 / CLASSES
# Four standard deviations of the accuracy of a coin with CLASSES sides.
MARGIN = 4 * (CHANCE * (1 - CHANCE) / TEST_IMAGES) ** 0.5
# Published sizes suit 256 channels and thousands of images; these suit 12 channels
# and keep an epoch short.
SMALL = {"n_features": 512, "n_components": CHANNELS, "n_clusters": 16}
SECOND_ORDER = [name for name in list_poolings() if name != "gap"]


class Pixels(nn.Identity):
    """A backbone whose features are the images."""

    out_channels = CHANNELS


@functools.cache
def textures(n_images: int, family: str, seed: int) -> tuple[Tensor, Tensor]:
    return make_textures(n_images, family=family, n_classes=CLASSES, channels=CHANNELS, size=10, seed=seed)


def small_pooling(name: str) -> Pooling:
    options = {key: value for key, value in SMALL.items() if key in pooling_class(name).option_defaults()}
    return create_pooling(format_spec(name, options), CHANNELS, num_classes=CLASSES)


def accuracy_after_one_epoch(
    name: str, family: str, *, lr: float = 5e-3, standardize: bool = True, start: bool = True
) -> float:
    torch.manual_seed(0)
    images, labels = textures(512, family, seed=1)
    model = Network(Pixels(), pooling=small_pooling(name), num_classes=CLASSES, reduce=None)
    if standardize and not model.pooling.needs_num_classes:
        # Poolings differ in scale by orders of magnitude; one learning rate serves
        # all after standardization.
        model.classifier = nn.Sequential(nn.BatchNorm1d(model.head_hidden_size, affine=False), model.classifier)
    if start:
        initialize(model, images.split(16))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for batch in torch.randperm(len(images)).split(16):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()
    images, labels = textures(TEST_IMAGES, family, seed=2)
    with torch.no_grad():
        return (model.eval()(images).argmax(dim=1) == labels).double().mean().item()


@pytest.mark.parametrize("name", SECOND_ORDER)
def test_one_epoch_beats_chance(name: str) -> None:
    assert accuracy_after_one_epoch(name, "correlation") > CHANCE + MARGIN


def test_netvlad_learns_faster_from_centres_of_its_data() -> None:
    started, random = (
        accuracy_after_one_epoch("netvlad", "correlation", lr=1e-3, standardize=False, start=start)
        for start in (True, False)
    )
    assert started > random + 0.1


@pytest.mark.parametrize("family", ["correlation", "partial"])
def test_gap_stays_at_chance(family: str) -> None:
    assert abs(accuracy_after_one_epoch("gap", family) - CHANCE) < MARGIN


def test_partial_correlations_learn_textures_that_covariance_does_not() -> None:
    covariance = accuracy_after_one_epoch("covariance", "partial")
    for name in ("precision", "isice"):
        assert accuracy_after_one_epoch(name, "partial") > covariance + 0.2
