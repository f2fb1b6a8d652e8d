import pytest
import torch

from isice.ops._numerics import matmul_no_autocast


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


@pytest.mark.parametrize(
    ("a", "b"), [((2, 3, 4), (2, 4, 5)), ((3, 4), (2, 4, 5)), ((2, 3, 4), (4, 5)), ((3, 4), (4, 5))]
)
def test_value_and_gradients_for_shared_and_batched_factors(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    left, right = draw(*a).requires_grad_(), draw(*b).requires_grad_()
    torch.testing.assert_close(matmul_no_autocast(left, right), torch.matmul(left, right))
    assert torch.autograd.gradcheck(matmul_no_autocast, (left, right))
    assert torch.autograd.gradgradcheck(matmul_no_autocast, (left, right))


def test_backward_under_autocast_is_in_full_precision() -> None:
    a, b = draw(2, 3, 4).float().requires_grad_(), draw(2, 4, 5).float()
    (expected,) = torch.autograd.grad(matmul_no_autocast(a, b).square().sum(), a)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (gradient,) = torch.autograd.grad(matmul_no_autocast(a, b).square().sum(), a)
    assert torch.equal(gradient, expected)


def test_only_wanted_gradients_are_computed() -> None:
    a, b = draw(2, 3, 4), draw(4, 5).requires_grad_()
    matmul_no_autocast(a, b).sum().backward()
    assert a.grad is None
    torch.testing.assert_close(b.grad, a.sum(dim=(0, 1))[:, None].expand(4, 5))


@pytest.mark.parametrize(("a", "b"), [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (3, 4, 5)), ((4,), (4, 5))])
def test_wrong_shapes_are_named(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="matmul_no_autocast: expected matrices"):
        matmul_no_autocast(draw(*a), draw(*b))
