"""Every operation computes in float32 or float64, whatever the autocast dtype."""

import functools
from collections.abc import Callable

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


def product(a: Tensor, b: Tensor) -> Tensor:
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
