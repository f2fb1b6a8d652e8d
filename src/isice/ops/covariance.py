"""④ Features → covariance Σ = X Ī Xᵀ, Ī = (I − 11ᵀ/N)/N (paper, Eq. 1)."""

from typing import Any

import torch
from torch import Tensor

from ._features import flat_features
from ._precision import full_precision, product


def covariance_reference(x: Tensor) -> Tensor:
    """The biased covariance of (..., C, N) by autograd; the oracle of :func:`covariance`."""
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred @ centred.mT / x.shape[-1]


class _Covariance(torch.autograd.Function):
    """One product each way: the gradient is (G + Gᵀ)(X − mean)/N, whose rows already sum to zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        centred = x - x.mean(dim=-1, keepdim=True)
        return product(centred, centred.mT) / x.shape[-1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,), (grad,) = ctx.saved_tensors, grads
        with torch.autocast(x.device.type, enabled=False):
            centred = x - x.mean(dim=-1, keepdim=True)
            return product(grad + grad.mT, centred) / x.shape[-1]


@full_precision
def covariance(x: Tensor) -> Tensor:
    """Covariance of the channels over the positions, biased (÷ N).

    The mean is subtracted before the product, so a large common offset costs no digits.

    Args:
        x: Feature maps (..., C, H, W), or feature sets (B, C, N) or (C, N).

    Returns:
        Matrices (..., C, C).

    Example:
        >>> covariance(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 8, 8])
    """
    return _Covariance.apply(flat_features("covariance", x))
