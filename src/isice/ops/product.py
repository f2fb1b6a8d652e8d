"""Matrix products that stay in full precision on the way back, even if backward() is called under autocast."""

from typing import Any

import torch
from torch import Tensor

from ._precision import full_precision


class _Product(torch.autograd.Function):
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
def product(a: Tensor, b: Tensor) -> Tensor:
    """The matrix product of (B, I, J) or (I, J) with (B, J, K) or (J, K), gradients in float32 or float64 as well.

    Example:
        >>> product(torch.eye(2), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor([[1., 2.],
                [3., 4.]])
    """
    sizes_match = a.shape[-1:] == b.shape[-2:-1] and (a.ndim < 3 or b.ndim < 3 or a.shape[0] == b.shape[0])
    if a.ndim not in (2, 3) or b.ndim not in (2, 3) or not sizes_match:
        raise ValueError(
            f"product: expected matrices (B, I, J) or (I, J) and (B, J, K) or (J, K), "
            f"got {tuple(a.shape)} and {tuple(b.shape)}."
        )
    return _Product.apply(a, b.to(a.dtype))
