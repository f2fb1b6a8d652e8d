import pytest
import torch

from isice.ops._linalg import plus_transpose, symmetric


@pytest.mark.parametrize("shape", [(3, 5, 5), (1, 7, 7), (4, 1, 1), (2, 64, 64), (0, 3, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sum_with_the_transpose(shape, dtype, generator):
    matrix = torch.randn(shape, generator=generator, dtype=dtype)
    expected = matrix + matrix.transpose(-2, -1)
    assert torch.equal(plus_transpose(matrix), expected)
    assert torch.equal(plus_transpose(matrix.mT), expected)
    assert torch.equal(symmetric(matrix), 0.5 * expected)


def test_views_and_expanded_matrices(generator):
    matrix = torch.randn(6, 4, 4, generator=generator)
    assert torch.equal(plus_transpose(matrix[::2, 1:, 1:]), (matrix + matrix.mT)[::2, 1:, 1:])
    assert torch.equal(plus_transpose(matrix[:1].expand(3, 4, 4)), (matrix + matrix.mT)[:1].expand(3, 4, 4))


def test_gradients(generator):
    matrix = torch.randn(2, 3, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a: plus_transpose(a).square(), matrix)
    assert torch.autograd.gradgradcheck(lambda a: plus_transpose(a).square(), matrix)
