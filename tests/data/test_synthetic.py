import pytest
import torch

from isice.data.synthetic import FAMILIES, gaussian_fields, make_textures, texture_covariances
from isice.ops.covariance import covariance


@pytest.mark.parametrize("family", FAMILIES)
def test_classes_share_their_variances_and_differ_in_covariance(family: str) -> None:
    covariances = texture_covariances(family, n_classes=5, channels=10)
    assert torch.linalg.eigvalsh(covariances).min() > 0.02
    torch.testing.assert_close(covariances.diagonal(dim1=1, dim2=2), torch.ones(5, 10))
    distances = torch.cdist(covariances.flatten(1), covariances.flatten(1))
    assert (distances + torch.eye(5)).min() > 0.1


def test_partial_family_hides_large_partial_correlations_beneath_equal_looking_covariances() -> None:
    covariances = texture_covariances("partial").double()
    precision = torch.linalg.inv(covariances)
    scale = precision.diagonal(dim1=1, dim2=2).rsqrt()
    partial = -precision * scale[:, :, None] * scale[:, None]
    assert (covariances[0] - covariances[1]).abs().max() <= 0.12 + 1e-6
    assert (partial[0] - partial[1]).abs().max() > 0.5


@pytest.mark.parametrize("smoothness", [0.0, 0.5])
def test_fields_have_the_given_covariance_and_mean_zero(smoothness: float) -> None:
    target = texture_covariances("partial")[:1]
    fields = gaussian_fields(target, size=256, smoothness=smoothness)
    assert fields.mean().abs() < 0.02
    torch.testing.assert_close(covariance(fields), target, rtol=0, atol=0.05)


def test_smoothness_correlates_neighbours() -> None:
    fields = gaussian_fields(torch.eye(4)[None], size=128, smoothness=0.5)
    # One tap of weight 0.5 on each side: lag one has (0.5 + 0.5)/(1 +
    # 2·0.25) = 2/3 of the variance.
    assert (fields * fields.roll(1, -1)).mean().item() == pytest.approx(2 / 3, abs=0.03)


def test_seeds_separate_images_from_classes() -> None:
    first, labels = make_textures(8, seed=1)
    again, _ = make_textures(8, seed=1)
    other, other_labels = make_textures(8, seed=2)
    assert torch.equal(first, again)
    assert torch.equal(labels, other_labels)
    assert not torch.equal(first, other)
    assert not torch.equal(texture_covariances(seed=0), texture_covariances(seed=1))


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="expected family to be one of 'correlation', 'partial', got 'partal'"):
        make_textures(4, family="partal")
    with pytest.raises(ValueError, match="expected an even number of channels to pair, got 9"):
        make_textures(4, channels=9)
