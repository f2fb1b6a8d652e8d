"""Every operation computes in float32 or float64, whatever the autocast dtype."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._checks import check_floating, is_half


@torch.library.custom_op("isice::exact_product", mutates_args=())
def _exact_product(a: Tensor, b: Tensor) -> Tensor:
    """The product under "highest"; an operation of its own, since torch.compile must not see the switch."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        return a @ b
    finally:
        torch.set_float32_matmul_precision(before)


@_exact_product.register_fake
def _(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty((*a.shape[:-1], b.shape[-1]))


@torch.compiler.assume_constant_result
def _rounds_to_tf32() -> bool:
    return torch.get_float32_matmul_precision() == "high"


def matmul_no_tf32(a: Tensor, b: Tensor) -> Tensor:
    """``a @ b`` in float32 accuracy on a GPU under "high" too, where PyTorch would round the factors to TF32.

    An iteration that amplifies small eigenvalues amplifies that rounding of its input as well; "medium" accepts it.
    """
    # The operation has no derivative: under create_graph=True PyTorch's own product takes its place.
    applies = torch.compiler.is_compiling() or not torch.is_grad_enabled()
    if applies and a.device.type == "cuda" and a.dtype == torch.float32 and _rounds_to_tf32():
        return _exact_product(a, b)
    return a @ b


def full_precision(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Decorator: turns autocast off and raises 16-bit input to float32; checks that the first argument is a tensor."""

    @functools.wraps(function)
    def wrapper(tensor: Tensor, *args: object, **kwargs: object) -> Tensor:
        check_floating(function.__name__, tensor)
        with torch.autocast(tensor.device.type, enabled=False):
            return function(tensor.float() if is_half(tensor.dtype) else tensor, *args, **kwargs)

    return wrapper


class _MatmulNoAutocast(torch.autograd.Function):
    """A plain product would run its backward products in 16 bits if autocast is on at that time."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None]:
        (a, b), (grad,) = ctx.saved_tensors, grads
        needs_a, needs_b = ctx.needs_input_grad
        with torch.autocast(grad.device.type, enabled=False):
            return _left_gradient(grad, a, b) if needs_a else None, _right_gradient(grad, a, b) if needs_b else None


def _left_gradient(grad: Tensor, a: Tensor, b: Tensor) -> Tensor:
    # One product over batch and columns for a shared factor, instead of one per image that is summed afterwards.
    return torch.einsum("bin,bjn->ij", grad, b) if a.ndim < grad.ndim else grad @ b.mT


def _right_gradient(grad: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.einsum("bni,bnj->ij", a, grad) if b.ndim < grad.ndim else a.mT @ grad


@full_precision
def matmul_no_autocast(a: Tensor, b: Tensor) -> Tensor:
    """The matrix product of (B, I, J) or (I, J) with (B, J, K) or (J, K), gradients in float32 or float64 as well.

    Example:
        >>> matmul_no_autocast(torch.eye(2), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor([[1., 2.],
                [3., 4.]])
    """
    sizes_match = a.shape[-1:] == b.shape[-2:-1] and (a.ndim < 3 or b.ndim < 3 or a.shape[0] == b.shape[0])
    if a.ndim not in (2, 3) or b.ndim not in (2, 3) or not sizes_match:
        raise ValueError(
            f"matmul_no_autocast: expected matrices (B, I, J) or (I, J) and (B, J, K) or (J, K), "
            f"got {tuple(a.shape)} and {tuple(b.shape)}."
        )
    return _MatmulNoAutocast.apply(a, b.to(a.dtype))
