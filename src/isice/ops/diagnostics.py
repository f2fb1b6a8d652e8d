"""Measures of matrices for analysis: quality of an inverse, share of zeros, smallest eigenvalue."""

import torch
from torch import Tensor

from .._checks import check_number, check_square
from ._numerics import full_precision


@full_precision
def inverse_residual(cov: Tensor, precision: Tensor) -> Tensor:
    """Return ‖ΣΩ − I‖_F/√D per matrix: zero for an exact inverse, one for Ω = 0.

    Example:
        >>> inverse_residual(2 * torch.eye(3), 0.5 * torch.eye(3))
        tensor(0.)
    """
    check_square("inverse_residual", cov)
    check_square("inverse_residual", precision)
    size = cov.shape[-1]
    if precision.shape[-1] != size:
        raise ValueError(
            f"inverse_residual: expected matrices of one size, got {tuple(cov.shape)} and {tuple(precision.shape)}."
        )
    eye = torch.eye(size, dtype=cov.dtype, device=cov.device)
    residual: Tensor = torch.linalg.matrix_norm(cov @ precision.to(cov.dtype) - eye)
    scale: float = size**0.5
    return residual / scale


@full_precision
def zero_fraction(matrix: Tensor, tol: float = 0.0) -> Tensor:
    """Return the fraction of off-diagonal entries with |entry| ≤ ``tol`` per matrix; one if D = 1.

    Example:
        >>> zero_fraction(torch.eye(3))
        tensor(1.)
    """
    check_square("zero_fraction", matrix)
    check_number("zero_fraction", "tol", tol)
    size = matrix.shape[-1]
    off_diagonal = ~torch.eye(size, dtype=torch.bool, device=matrix.device)
    small = (matrix.abs() <= tol) & off_diagonal
    if size == 1:
        return matrix.new_ones(matrix.shape[:-2])
    return small.sum(dim=(-2, -1)).to(matrix.dtype) / (size * (size - 1))


@full_precision
def smallest_eigenvalue(matrix: Tensor) -> Tensor:
    """Return the smallest eigenvalue of each symmetric matrix (..., D, D).

    Example:
        >>> smallest_eigenvalue(torch.diag(torch.tensor([3.0, -1.0])))
        tensor(-1.)
    """
    check_square("smallest_eigenvalue", matrix)
    values: Tensor = torch.linalg.eigvalsh(matrix)
    return values[..., 0]
