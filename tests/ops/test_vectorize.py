import numpy as np
import pytest
import torch

import isice.functional as F
from isice.ops.vectorize import vectorize_reference


def test_the_order_is_a_promise():
    """Row-major upper triangle with diagonal; trained classifiers depend on the order."""
    matrix = torch.tensor([[11.0, 12, 13], [12, 22, 23], [13, 23, 33]])
    assert F.vectorize(matrix).tolist() == [11, 12, 13, 22, 23, 33]


@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_against_numpy_and_back(size, generator):
    matrix = torch.randn(2, 3, size, size, generator=generator)
    matrix = matrix + matrix.mT
    vector = F.vectorize(matrix)
    assert vector.shape == (2, 3, size * (size + 1) // 2)
    np.testing.assert_array_equal(vector, matrix.numpy()[..., *np.triu_indices(size)])
    assert torch.equal(vector, vectorize_reference(matrix))
    assert torch.equal(F.unvectorize(vector), matrix)


def test_gradients(generator):
    matrix = torch.randn(2, 3, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    vector = torch.randn(2, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(F.vectorize, matrix)
    assert torch.autograd.gradcheck(F.unvectorize, vector)
    assert torch.autograd.gradgradcheck(F.vectorize, matrix)


def test_usable_for_training_after_inference_mode():
    with torch.inference_mode():
        F.vectorize(torch.eye(5))
    matrix = torch.eye(5, requires_grad=True)
    F.vectorize(matrix).sum().backward()
    assert matrix.grad.sum() == 15


def test_errors():
    with pytest.raises(ValueError, match=r"unvectorize: expected .* such as 6 or 10, got \(2, 7\)"):
        F.unvectorize(torch.zeros(2, 7))
    with pytest.raises(ValueError, match=r"unvectorize: expected .* such as 1 or 3, got \(\)"):
        F.unvectorize(torch.zeros(()))
