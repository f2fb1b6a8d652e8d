"""④ Features → uncentred second moment XXᵀ/N, and quadratic forms of a matrix."""

from typing import Any, cast

import torch
from torch import Tensor

from .._checks import check_square
from ._numerics import InputsSaved, full_precision, matmul_no_autocast
from .covariance import flat_features


class _SecondMoment(InputsSaved):
    """XXᵀ/N by one product, and its gradient (G + Gᵀ)X/N by another."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x @ x.mT / x.shape[-1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,), (grad,) = ctx.saved_tensors, grads
        with torch.autocast(x.device.type, enabled=False):
            return cast(Tensor, (grad + grad.mT) @ x / x.shape[-1])


@full_precision
def second_moment(x: Tensor) -> Tensor:
    """Compute the uncentred second moment of the channels, XXᵀ/N: the bilinear pooling of B-CNN.

    Args:
        x: Feature maps (B, C, H, W), or feature sets (B, C, N) or (C, N).

    Returns:
        Matrices (..., C, C).

    Example:
        >>> second_moment(torch.tensor([[1.0, 2.0], [0.0, 2.0]]))
        tensor([[2.5000, 2.0000],
                [2.0000, 2.0000]])
    """
    return cast(Tensor, _SecondMoment.apply(flat_features("second_moment", x)))


@full_precision
def quadratic_forms(matrix: Tensor, weight: Tensor) -> Tensor:
    """Compute the parametric vectorization z_k = w_kᵀ A w_k (SMSO).

    Args:
        matrix: Symmetric matrices A (B, D, D).
        weight: Directions w_k, the columns of (D, K).

    Returns:
        Vectors (B, K).

    Example:
        >>> matrix, weight = torch.diag(torch.tensor([2.0, 3.0])), torch.ones(2, 2).triu()
        >>> quadratic_forms(matrix, weight)
        tensor([2., 5.])
    """
    check_square("quadratic_forms", matrix)
    if weight.ndim != 2 or weight.shape[0] != matrix.shape[-1]:
        raise ValueError(f"quadratic_forms: expected weight ({matrix.shape[-1]}, K), got {tuple(weight.shape)}.")
    return torch.sum(matmul_no_autocast(matrix, weight) * weight, dim=-2)
