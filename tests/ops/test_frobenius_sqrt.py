import pytest
import torch

from isice.ops.frobenius_sqrt import frobenius_sqrt, frobenius_sqrt_reference
from isice.ops.newton_schulz import newton_schulz_sqrt


def psd(rank: int) -> torch.Tensor:
    x = torch.randn(3, 6, rank, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x @ x.mT / rank


@pytest.mark.parametrize("n_iter", [1, 2, 5])
@pytest.mark.parametrize("rank", [3, 20])
def test_value_and_gradient_equal_the_published_iteration(n_iter: int, rank: int) -> None:
    matrix = psd(rank).requires_grad_()
    weights = torch.randn(3, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    results = []
    for function in (lambda matrix, n: frobenius_sqrt(matrix, n_iter=n), frobenius_sqrt_reference):
        out = function(matrix, n_iter)
        (grad,) = torch.autograd.grad((out * weights).sum(), matrix)
        # Gradients are compared on symmetric directions, the only ones a
        # symmetric input can move in.
        results.append((out, grad + grad.mT))
    torch.testing.assert_close(results[0], results[1])


def test_many_steps_give_the_square_root() -> None:
    root = frobenius_sqrt(psd(20), n_iter=25)
    torch.testing.assert_close(root @ root, psd(20))


def test_few_steps_are_nearer_to_the_root_than_after_division_by_the_trace() -> None:
    values, vectors = torch.linalg.eigh(psd(20))
    root = vectors * values.sqrt().unsqueeze(-2) @ vectors.mT
    assert (frobenius_sqrt(psd(20), n_iter=3) - root).norm() < (newton_schulz_sqrt(psd(20), n_iter=3) - root).norm()


def test_zero_matrix_gives_zero_and_a_finite_gradient() -> None:
    matrix = torch.zeros(1, 4, 4, requires_grad=True)
    out = frobenius_sqrt(matrix)
    out.sum().backward()
    assert torch.equal(out, torch.zeros(1, 4, 4))
    assert torch.isfinite(matrix.grad).all()


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="frobenius_sqrt: expected n_iter ≥ 1, got 0"):
        frobenius_sqrt(torch.eye(3), n_iter=0)
