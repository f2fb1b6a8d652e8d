"""LRBP: its logits are inner products with low-rank matrices that are never formed."""

import pytest
import torch

from isice.pooling import create_pooling
from isice.pooling.low_rank_bilinear import LowRankBilinear
from tests.pooling._literal import features


@pytest.mark.parametrize("average", [True, False])
def test_scores_equal_the_inner_product_with_the_bilinear_matrix(average):
    layer = LowRankBilinear(6, num_classes=3, n_components=4, rank=4, average=average).double()
    torch.nn.init.normal_(layer.bias)
    x = features(2, 6, 3, 5)
    got = layer(x)
    for b in range(2):
        projected = layer.projection @ x[b].flatten(1)
        bilinear = projected @ projected.T / (15 if average else 1)
        for k in range(3):
            plus, minus = layer.factors[k, :2], layer.factors[k, 2:]
            weight = plus.T @ plus - minus.T @ minus
            torch.testing.assert_close(got[b, k], (weight * bilinear).sum() + layer.bias[k])


def test_power_norm_is_the_signed_root_of_the_projected_features():
    layer = LowRankBilinear(6, num_classes=3, n_components=4, rank=2, power_norm=True).double()
    x = 100 * features(1, 6, 2, 2)
    projected = layer.projection @ x[0].flatten(1)
    roots = projected.sign() * projected.abs().sqrt()
    positive, negative = (layer.factors @ roots).square().mean(-1).unbind(-1)
    torch.testing.assert_close(layer(x)[0], positive - negative, rtol=0.02, atol=0.02)


def test_neither_bilinear_matrix_is_formed():
    layer, x = LowRankBilinear(12, num_classes=3, n_components=10), torch.rand(1, 12, 4, 4, requires_grad=True)
    shapes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: shapes.append(tuple(t.shape)) or t, lambda t: t):
        layer(x)
    assert shapes
    assert not [shape for shape in shapes if shape[-2:] in {(12, 12), (10, 10)}]


def test_it_is_a_classifier():
    layer = create_pooling("low_rank_bilinear(n_components=4)", 6, num_classes=5)
    assert layer.needs_num_classes
    assert layer.out_features == 5
    assert layer(torch.rand(2, 6, 3, 3)).shape == (2, 5)
    with pytest.raises(ValueError, match="low_rank_bilinear: expected num_classes, got None"):
        create_pooling("low_rank_bilinear", 6)


def test_logits_start_near_zero_but_not_at_it():
    """At zero factors have no gradient; large ones make a random bias of the mean feature."""
    torch.manual_seed(0)
    layer, x = create_pooling("low_rank_bilinear", 256, num_classes=50), torch.randn(8, 256, 7, 7).relu()
    layer.init_from(x)
    assert 1e-3 < layer(x).std() < 0.1


def test_init_from_takes_principal_components():
    descriptors = features(500, 6) * torch.tensor([1, 9, 1, 5, 1, 1], dtype=torch.float64) + 3
    layer = LowRankBilinear(6, num_classes=3, n_components=2).double()
    layer.init_from(descriptors.T.reshape(1, 6, 20, 25))
    torch.testing.assert_close(layer.projection.abs()[0, 1], torch.tensor(1.0, dtype=torch.float64), atol=0.02, rtol=0)
    torch.testing.assert_close(layer.projection.abs()[1, 3], torch.tensor(1.0, dtype=torch.float64), atol=0.02, rtol=0)


def test_init_from_with_more_components_than_channels():
    layer = LowRankBilinear(6, num_classes=3, n_components=9)
    before = layer.projection.detach().clone()
    layer.init_from(features(2, 6, 4, 4).float())
    torch.testing.assert_close(layer.projection[:6] @ layer.projection[:6].mT, torch.eye(6), atol=1e-5, rtol=0)
    assert torch.equal(layer.projection[6:], before[6:])
