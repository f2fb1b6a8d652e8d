"""HIHCA against its formula; degree two is random Maclaurin."""

import pytest
import torch

from isice.pooling.compact_bilinear import CompactBilinear
from isice.pooling.hihca import HIHCA
from tests.pooling._literal import by_image, features, normalized


def polynomial_by_loop(image, weights):
    return [sum(torch.prod(weights[:, k] @ position).item() for position in image.T) for k in range(weights.shape[1])]


@pytest.mark.parametrize("degree", [2, 3])
@pytest.mark.parametrize("homogeneous", [True, False])
def test_equals_a_loop(degree, homogeneous):
    layer, x = HIHCA(5, degree=degree, homogeneous=homogeneous, n_features=7).double(), features(2, 5, 3, 4)

    def literal(image):
        out = [] if homogeneous else [row.sum().item() / 12 for row in image]
        for weights in layer.weights:
            out += polynomial_by_loop(image, weights)
        return normalized(out)

    assert [len(weights) for weights in layer.weights] == ([degree] if homogeneous else list(range(2, degree + 1)))
    torch.testing.assert_close(layer(x), by_image(literal, x))


def test_homogeneous_degree_two_equals_random_maclaurin_with_the_same_weights():
    hihca = HIHCA(6, n_features=21).double()
    compact = CompactBilinear(6, method="random_maclaurin", n_features=21).double()
    x = features(2, 6, 4, 4)
    assert not torch.allclose(hihca(x), compact(x))
    compact.load_state_dict({"weights": hihca.weights[0].detach()})
    torch.testing.assert_close(hihca(x), compact(x), rtol=1e-12, atol=1e-14)


def test_weights_start_as_scaled_signs_from_the_seed_and_are_trained():
    first, same, other = HIHCA(6, n_features=16), HIHCA(6, n_features=16), HIHCA(6, n_features=16, seed=2)
    assert torch.equal(first.weights[0].abs(), torch.full((2, 16, 6), 0.25))
    assert torch.equal(first.weights[0], same.weights[0])
    assert not torch.equal(first.weights[0], other.weights[0])
    (first(torch.rand(2, 6, 3, 3)) * torch.rand(16)).sum().backward()
    assert first.weights[0].grad.abs().sum() > 0
