"""Floating-point policy: matrix products without TF32 rounding and without autocast."""

import pytest
import torch

import isice.functional as F
from isice.ops import _numerics
from isice.ops._numerics import matmul_no_autocast, to_float32


@pytest.fixture
def matmul_precision():
    """Return the setter of the matmul precision, which is restored afterwards."""
    before = torch.get_float32_matmul_precision()
    yield torch.set_float32_matmul_precision
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("mode", ["highest", "high"])
def test_float32_products_leave_the_matmul_precision_as_it_was(mode, matmul_precision):
    a, b = torch.randn(2, 3, 4), torch.randn(2, 4, 5)
    matmul_precision(mode)
    product = torch.ops.isice.exact_product(a, b)
    assert torch.get_float32_matmul_precision() == mode
    torch.testing.assert_close(product, a @ b)
    plus = torch.randn(2, 3, 5)
    torch.testing.assert_close(torch.ops.isice.exact_product(a, b, plus, 2.0, -1.0), 2 * plus - a @ b)


def test_float32_products_are_computed_under_highest(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", chosen.append)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    torch.ops.isice.exact_product(torch.ones(1, 2, 2), torch.ones(1, 2, 2))
    assert chosen == ["highest", "high"]


def test_float32_products_have_a_shape_under_tracing():
    with torch._subclasses.FakeTensorMode():
        assert torch.ops.isice.exact_product(torch.empty(2, 3, 4), torch.empty(2, 4, 5)).shape == (2, 3, 5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_operations_compute_16_bit_input_in_float32_even_under_autocast(dtype):
    x = torch.rand(2, 4, 9).to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(F.second_moment(x), F.second_moment(x.float()))


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


def test_the_switch_is_marked_as_torch_marks_constants():
    def function():
        return True

    marks = vars(torch.compiler.assume_constant_result(function))
    assert marks.items() <= vars(_numerics._rounds_to_tf32).items()


def test_gradients_in_float16_saturate_and_infinite_ones_stay():
    x = torch.ones(4, dtype=torch.float16, requires_grad=True)
    to_float32(x).backward(torch.tensor([1.0, 1e6, -1e6, torch.inf]))
    assert x.grad.tolist() == [1.0, 65504.0, -65504.0, torch.inf]


def test_a_loss_scaler_sees_infinite_gradients():
    weight = torch.ones(4, requires_grad=True)
    scaler, optimizer = torch.amp.GradScaler("cpu", init_scale=2.0**16), torch.optim.SGD([weight], lr=0.1)
    scaler.scale((to_float32(weight.half()) * torch.inf).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**15
    assert weight.tolist() == [1.0] * 4
