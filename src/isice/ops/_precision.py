"""Every operation computes in float32 or float64, whatever the autocast dtype."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from .._checks import check_floating, is_half


def full_precision(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Decorator: turns autocast off and raises 16-bit input to float32; checks that the first argument is a tensor."""

    @functools.wraps(function)
    def wrapper(tensor: Tensor, *args: object, **kwargs: object) -> Tensor:
        check_floating(function.__name__, tensor)
        with torch.autocast(tensor.device.type, enabled=False):
            return function(tensor.float() if is_half(tensor.dtype) else tensor, *args, **kwargs)

    return wrapper
