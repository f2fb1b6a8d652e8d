"""TKPF against its dense Kronecker matrix."""

import pytest
import torch

from isice.pooling.tkpf import TKPF
from tests.pooling._literal import by_image, features, normalized


@pytest.mark.parametrize("channels", [6, 8])
@pytest.mark.parametrize("combine", ["sum", "concat"])
def test_equals_the_dense_kronecker_matrix(combine, channels):
    layer = TKPF(channels, n_left=8, n_right=4, blocks=4, n_pairs=3, combine=combine).double()
    x, eye = features(2, channels, 3, 3), torch.eye(4, dtype=torch.float64)

    def literal(image):
        padded = torch.cat([image, torch.zeros(8 - channels, 9, dtype=torch.float64)])
        bilinear, branches = padded @ padded.T / 9, []
        for weights in layer.weights:
            a, b = torch.kron(eye, weights[:2]), torch.kron(weights[2:], eye)
            columns = [bilinear[i, j] for j in range(8) for i in range(8)]
            branches.append(normalized((torch.kron(a, b) @ torch.stack(columns)).tolist()))
        return sum(branches) if combine == "sum" else torch.cat(branches)

    torch.testing.assert_close(layer(x), by_image(literal, x))


def test_positions_are_not_mixed():
    """The order of the positions cannot matter, as it would if features were reshaped."""
    layer, x = TKPF(8, n_left=8, n_right=4, blocks=4), torch.rand(1, 8, 3, 3)
    shuffled = x.flatten(2)[..., torch.randperm(9, generator=torch.Generator().manual_seed(0))].unflatten(2, (3, 3))
    torch.testing.assert_close(layer(x), layer(shuffled))


def test_projections_start_from_the_seed_and_are_trained():
    first = TKPF(32)
    assert torch.equal(first.weights, TKPF(32).weights)
    assert not torch.equal(first.weights, TKPF(32, seed=2).weights)
    assert first.out_features == 4096
    assert first.weights.numel() == 2 * (4 + 4) * 2
    (first(torch.rand(2, 32, 3, 3)) * torch.rand(4096)).sum().backward()
    assert (first.weights.grad != 0).all()


def test_neither_the_bilinear_nor_the_dense_matrix_is_formed():
    shapes = []
    layer, x = TKPF(24, n_left=8, n_right=4, blocks=4), torch.rand(1, 24, 5, 5, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: shapes.append(tuple(t.shape)) or t, lambda t: t):
        layer(x)
    assert shapes
    assert not [shape for shape in shapes if shape[-2:] == (24, 24) or 24 * 24 in shape]
