"""④ Features → covariance Σ = X Ī Xᵀ, Ī = (I − 11ᵀ/N)/N (paper, Sec. 3)."""

from typing import Any, cast

import torch
from torch import Tensor

from .._checks import check_floating, is_half
from . import _dispatch
from ._autograd import FusedCovariance
from ._numerics import InputsSaved, full_precision, matmul_no_tf32


def flat_features(who: str, x: Tensor) -> Tensor:
    """Reshape feature maps (..., C, H, W) to (..., C, N); (B, C, N) and (C, N) stay as they are."""
    sizes = x.shape[-3:] if x.ndim > 3 else x.shape[-2:]
    if x.ndim < 2 or 0 in sizes:
        raise ValueError(
            f"{who}: expected features (B, C, H, W) or (B, C, N) with at least one channel and position, "
            f"got {tuple(x.shape)}."
        )
    return x.flatten(-2) if x.ndim > 3 else x


def covariance_reference(x: Tensor) -> Tensor:
    """Compute the biased covariance of (..., C, N), differentiated by autograd; the test oracle."""
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred @ centred.mT / x.shape[-1]


def differentiable_vjp(x: Tensor, grad: Tensor) -> Tensor:
    """Return the gradient (G + Gᵀ)(X − mean)/N by one product, in differentiable operations."""
    with torch.autocast(x.device.type, enabled=False):
        features = x.float() if is_half(x.dtype) else x
        centred = features - features.mean(dim=-1, keepdim=True)
        return (matmul_no_tf32(grad + grad.mT, centred) / x.shape[-1]).to(x.dtype)


class _Covariance(InputsSaved):
    """The covariance of (..., C, N) by one product, and its gradient by another."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        centred = x - x.mean(dim=-1, keepdim=True)
        return matmul_no_tf32(centred, centred.mT) / x.shape[-1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,), (grad,) = ctx.saved_tensors, grads
        return differentiable_vjp(x, grad)


@full_precision
def _by_products(x: Tensor) -> Tensor:
    return cast(Tensor, _Covariance.apply(x))


def covariance(x: Tensor, *, backend: _dispatch.Backend | None = None) -> Tensor:
    """Compute the biased covariance (÷ N) of the channels over the positions.

    The mean is subtracted before the product, so a large common offset does not cancel digits.

    Args:
        x: Feature maps (..., C, H, W), or feature sets (B, C, N) or (C, N).
        backend: ``"torch"``, ``"triton"``, or ``"auto"`` for the GPU kernels where they apply.

    Returns:
        Matrices (..., C, C).

    Example:
        >>> covariance(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 8, 8])
    """
    check_floating("covariance", x)
    features = flat_features("covariance", x)
    *batch, channels, positions = features.shape
    reason = _dispatch.does_not_apply(features, "C", channels, half=True)
    if not _dispatch.choose_kernels("covariance", backend, reason):
        return _by_products(features)
    cov = cast(Tensor, FusedCovariance.apply(features.reshape(-1, channels, positions)))
    return cov.reshape(*batch, channels, channels)
