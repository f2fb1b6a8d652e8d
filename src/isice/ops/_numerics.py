"""Floating-point policy: operations compute in float32 or float64 regardless of autocast."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from .._checks import check_floating, is_half

Operation = TypeVar("Operation", bound=Callable[..., Tensor])
# Features beyond LARGE are scaled to about SCALED, where neither squares overflow nor an ε matters.
LARGE, SCALED = 1e12, 1e6


def full_precision(function: Operation) -> Operation:
    """Decorate an operation: check the first tensor, disable autocast, convert 16-bit input."""

    @functools.wraps(function)
    def wrapper(tensor: Tensor, *args: object, **kwargs: object) -> Tensor:
        check_floating(function.__name__, tensor)
        with torch.autocast(tensor.device.type, enabled=False):
            return function(tensor.float() if is_half(tensor.dtype) else tensor, *args, **kwargs)

    return cast(Operation, wrapper)


class InputsSaved(torch.autograd.Function):
    """An operation that saves its tensors for backward, and other arguments in ``ctx.options``."""

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*(value for value in inputs if isinstance(value, Tensor)))
        ctx.options = tuple(value for value in inputs if not isinstance(value, Tensor))


class _Widen(torch.autograd.Function):
    """Conversion to float32 whose gradient saturates at the largest float16 instead of infinity."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.float()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.dtype = inputs[0].dtype

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        largest = torch.finfo(ctx.dtype).max
        # Infinite gradients stay infinite: they show that the loss has diverged.
        saturated = torch.where(grads[0].isinf(), grads[0], grads[0].clamp(-largest, largest))
        return saturated.to(ctx.dtype)


def to_float32(x: Tensor) -> Tensor:
    """Convert 16-bit features to float32; gradients in float16 saturate instead of overflowing."""
    # bfloat16 has the range of float32.
    return cast(Tensor, _Widen.apply(x)) if x.dtype == torch.float16 and x.requires_grad else x.float()


def scale_down(x: Tensor, dim: int | tuple[int, ...]) -> Tensor:
    """Divide slices along ``dim`` with entries beyond 1e12, to avoid overflow.

    The factor is a constant for the gradient. Use it before functions that ignore the scale of x.

    Example:
        >>> scale_down(torch.tensor([[1.0, 2.0], [1e18, 2e18]]), dim=-1)
        tensor([[1.0000e+00, 2.0000e+00],
                [5.0000e+05, 1.0000e+06]])
    """
    largest = x.detach().abs().amax(dim=dim, keepdim=True)
    return x / torch.where(largest > LARGE, largest / SCALED, 1.0)


@torch.library.custom_op("isice::exact_product", mutates_args=())
def _float32_matmul(a: Tensor, b: Tensor, plus: Tensor | None = None, beta: float = 1.0, alpha: float = 1.0) -> Tensor:
    """Multiply under "highest"; an operator, because torch.compile cannot trace the switch."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        return a @ b if plus is None else torch.baddbmm(plus, a, b, beta=beta, alpha=alpha)
    finally:
        torch.set_float32_matmul_precision(before)


@_float32_matmul.register_fake
def _(a: Tensor, b: Tensor, plus: Tensor | None = None, beta: float = 1.0, alpha: float = 1.0) -> Tensor:
    return a.new_empty((*a.shape[:-1], b.shape[-1]))


def _rounds_to_tf32() -> bool:
    return torch.get_float32_matmul_precision() == "high"


# The mark of torch.compiler.assume_constant_result, whose call would import torch._dynamo.
_rounds_to_tf32._dynamo_marked_constant = True  # type: ignore[attr-defined]


def matmul_no_tf32(a: Tensor, b: Tensor) -> Tensor:
    """Return ``a @ b`` without the rounding to TF32 that matmul precision "high" allows on a GPU.

    An iteration that amplifies small eigenvalues also amplifies that rounding error. Matmul
    precision "medium" accepts it. Autocast still applies; compare :func:`matmul_no_autocast`.
    """
    return cast(Tensor, _float32_matmul(a, b)) if _would_round(a) else a @ b


def baddbmm_no_tf32(plus: Tensor, a: Tensor, b: Tensor, *, beta: float, alpha: float) -> Tensor:
    """Return ``beta * plus + alpha * (a @ b)`` like :func:`matmul_no_tf32`, in one pass."""
    if _would_round(a):
        return cast(Tensor, _float32_matmul(a, b, plus, beta, alpha))
    return torch.baddbmm(plus, a, b, beta=beta, alpha=alpha)


def _would_round(a: Tensor) -> bool:
    # The operator has no derivative, so create_graph=True uses PyTorch's own product.
    applies = torch.compiler.is_compiling() or not torch.is_grad_enabled()
    return applies and a.device.type == "cuda" and a.dtype == torch.float32 and _rounds_to_tf32()


class _MatmulNoAutocast(InputsSaved):
    """Matrix product whose backward pass disables autocast."""

    @staticmethod
    def forward(a: Tensor, b: Tensor) -> Tensor:
        return a @ b

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None]:
        (a, b), (grad,) = ctx.saved_tensors, grads
        d_a = d_b = None
        with torch.autocast(grad.device.type, enabled=False):
            # A shared factor takes one product over batch and columns, not one per image and a sum.
            if ctx.needs_input_grad[0]:
                d_a = torch.einsum("bin,bjn->ij", grad, b) if a.ndim < grad.ndim else grad @ b.mT
            if ctx.needs_input_grad[1]:
                d_b = torch.einsum("bni,bnj->ij", a, grad) if b.ndim < grad.ndim else a.mT @ grad
        return d_a, d_b


@full_precision
def matmul_no_autocast(a: Tensor, b: Tensor) -> Tensor:
    """Multiply (B, I, J) or (I, J) with (B, J, K) or (J, K), forward and backward without autocast.

    The gradients stay in float32 or float64 even if ``backward()`` itself is called under autocast.
    TF32 settings still apply; compare :func:`matmul_no_tf32`.
    """
    sizes_match = a.shape[-1:] == b.shape[-2:-1] and (a.ndim < 3 or b.ndim < 3 or a.shape[0] == b.shape[0])
    if a.ndim not in (2, 3) or b.ndim not in (2, 3) or not sizes_match:
        raise ValueError(
            f"matmul_no_autocast: expected matrices (B, I, J) or (I, J) and (B, J, K) or (J, K), "
            f"got {tuple(a.shape)} and {tuple(b.shape)}."
        )
    return cast(Tensor, _MatmulNoAutocast.apply(a, b.to(a.dtype)))
