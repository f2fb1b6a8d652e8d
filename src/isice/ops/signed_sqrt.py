"""⑥ Signed square root and ℓ2 normalisation, with bounded gradients at zero."""

import torch
from torch import Tensor

from .._checks import check_number
from ._numerics import full_precision


def signed_sqrt_reference(x: Tensor, eps: float = 1e-5) -> Tensor:
    """Compute √(relu x + ε) − √(relu −x + ε) as published; it cancels digits where |x| ≪ ε."""
    return (x.relu() + eps).sqrt() - ((-x).relu() + eps).sqrt()


@full_precision
def signed_sqrt(x: Tensor, eps: float = 1e-5) -> Tensor:
    """Compute the signed square root √(relu x + ε) − √(relu −x + ε) as x / (√(|x| + ε) + √ε).

    It equals sign(x)·√|x| up to √ε, is odd, and has its largest slope 1/(2√ε) at zero.

    Args:
        x: Any shape.
        eps: ε; the default bounds the slope by 158.

    Example:
        >>> signed_sqrt(torch.tensor([-4.0, 0.0, 9.0]))
        tensor([-1.9968,  0.0000,  2.9968])
    """
    check_number("signed_sqrt", "eps", eps, strict=True)
    offset: float = eps**0.5
    return x / ((x.abs() + eps).sqrt() + offset)


@full_precision
def l2_normalize(x: Tensor, dim: int = -1, eps: float = 1e-12) -> Tensor:
    """Scale to unit length along ``dim``: x / √(‖x‖² + ε).

    Zero vectors stay zero, and gradients are at most 1/√ε.

    Args:
        x: Any shape with at least one dimension.
        dim: Dimension of the vectors.
        eps: Added to the squared length; vectors much shorter than √ε stay shorter than one.

    Example:
        >>> l2_normalize(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    check_number("l2_normalize", "eps", eps, strict=True)
    return x * torch.rsqrt(x.square().sum(dim=dim, keepdim=True) + eps)
