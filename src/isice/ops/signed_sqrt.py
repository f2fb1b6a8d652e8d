"""⑥ The element-wise normalisations of bilinear features: signed square root, then ℓ2, both safe at zero."""

import torch
from torch import Tensor

from .._checks import check_number
from ._numerics import full_precision


def signed_sqrt_reference(x: Tensor, eps: float = 1e-5) -> Tensor:
    """√(relu x + ε) − √(relu −x + ε), as published; loses digits by cancellation when |x| is far below ε."""
    return (x.relu() + eps).sqrt() - ((-x).relu() + eps).sqrt()


@full_precision
def signed_sqrt(x: Tensor, eps: float = 1e-5) -> Tensor:
    """Signed square root √(relu x + ε) − √(relu −x + ε), computed as x / (√(|x| + ε) + √ε).

    It is sign(x)·√|x| up to √ε, exactly zero at zero, odd, and its slope never exceeds 1/(2√ε), the value at zero.

    Args:
        x: Any shape.
        eps: Bounds the slope at zero: 158 for the default.

    Example:
        >>> signed_sqrt(torch.tensor([-4.0, 0.0, 9.0]))
        tensor([-1.9968,  0.0000,  2.9968])
    """
    check_number("signed_sqrt", "eps", eps, strict=True)
    return x / ((x.abs() + eps).sqrt() + eps**0.5)


@full_precision
def l2_normalize(x: Tensor, dim: int = -1, eps: float = 1e-12) -> Tensor:
    """Unit length along ``dim``: x / √(‖x‖² + ε). A zero vector stays zero and its gradient is bounded by 1/√ε.

    Args:
        x: Any shape with at least one dimension.
        dim: The dimension along which the length becomes one.
        eps: Added to the squared length; vectors much shorter than √ε are not brought to unit length.

    Example:
        >>> l2_normalize(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    check_number("l2_normalize", "eps", eps, strict=True)
    return x * torch.rsqrt(x.square().sum(dim=dim, keepdim=True) + eps)
