"""FCBN against an eigendecomposition."""

import pytest
import torch

from isice.pooling.fcbn import FCBN
from tests.pooling._literal import by_image, features, normalized


def test_converged_iteration_equals_the_exact_root():
    layer, x = FCBN(4, n_left=3, n_right=2, n_iter=30).double(), features(2, 4, 5, 5)
    left, right = layer.weights[:3], layer.weights[3:]

    def literal(image):
        values, vectors = torch.linalg.eigh(image @ image.T / 25)
        root = vectors @ torch.diag(values.sqrt()) @ vectors.T
        return normalized([(left[i] @ root @ right[j]).item() for i in range(3) for j in range(2)])

    torch.testing.assert_close(layer(x), by_image(literal, x), rtol=1e-6, atol=1e-8)


def test_few_steps_equal_the_printed_iteration():
    layer, x = FCBN(4, n_left=3, n_right=2, n_iter=2).double(), features(2, 4, 3, 3)
    left, right, eye = layer.weights[:3], layer.weights[3:], torch.eye(4, dtype=torch.float64)

    def literal(image):
        moment = image @ image.T / 9
        y, z = moment / moment.trace(), eye
        for _ in range(2):
            p = 0.5 * (3 * eye - z @ y)
            y, z = y @ p, p @ z
        return normalized((left @ (moment.trace().sqrt() * y) @ right.T).flatten().tolist())

    torch.testing.assert_close(layer(x), by_image(literal, x))


@pytest.mark.parametrize("learnable", [False, True])
def test_projections_are_signs_from_the_seed(learnable):
    layer = FCBN(16, n_left=8, n_right=4, learnable=learnable)
    assert torch.equal(layer.weights.abs(), torch.full((12, 16), 0.25))
    assert bool(list(layer.parameters())) == learnable
    assert "weights" in layer.state_dict()
    assert torch.equal(layer.weights, FCBN(16, n_left=8, n_right=4).weights)
    assert not torch.equal(layer.weights, FCBN(16, n_left=8, n_right=4, seed=2).weights)
