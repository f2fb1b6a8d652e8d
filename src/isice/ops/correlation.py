"""⑤ Covariance → correlation and precision → partial correlation: scaling to a unit diagonal."""

import torch
from torch import Tensor

from .._checks import check_square
from ._linalg import NO_VARIANCE, add_diagonal_
from ._numerics import full_precision


def correlation_reference(cov: Tensor) -> Tensor:
    """Compute Σ_ij/√(Σ_ii Σ_jj) for positive diagonals; the oracle of :func:`correlation`."""
    deviation = cov.diagonal(dim1=-2, dim2=-1).sqrt()
    return cov / (deviation.unsqueeze(-1) * deviation.unsqueeze(-2))


def _unit_diagonal(matrix: Tensor, sign: float) -> Tensor:
    """Return sign·M_ij/√(M_ii M_jj) with a unit diagonal; rows with M_ii ≤ 0 become rows of I."""
    diagonal = matrix.diagonal(dim1=-2, dim2=-1)
    floor = NO_VARIANCE * diagonal.amax(-1, keepdim=True).clamp_min(NO_VARIANCE)
    positive = diagonal > floor
    scale = torch.where(positive, torch.where(positive, diagonal, 1.0).rsqrt(), 0.0)
    scaled = sign * scale.unsqueeze(-1) * matrix * scale.unsqueeze(-2)
    off_diagonal = ~torch.eye(matrix.shape[-1], dtype=torch.bool, device=matrix.device)
    return add_diagonal_(scaled * off_diagonal, 1.0)


@full_precision
def correlation(cov: Tensor) -> Tensor:
    """Compute correlation matrices (..., D, D); variables without variance get zero correlations.

    Example:
        >>> correlation(torch.tensor([[4.0, 1.0], [1.0, 1.0]]))
        tensor([[1.0000, 0.5000],
                [0.5000, 1.0000]])
    """
    check_square("correlation", cov)
    return _unit_diagonal(cov, 1.0)


@full_precision
def partial_correlation(precision: Tensor) -> Tensor:
    """Compute partial correlations −Ω_ij/√(Ω_ii Ω_jj) of precision matrices (..., D, D).

    The diagonal is set to one (paper, Sec. 3).

    Example:
        >>> partial_correlation(torch.tensor([[4.0, -1.0], [-1.0, 1.0]]))
        tensor([[1.0000, 0.5000],
                [0.5000, 1.0000]])
    """
    check_square("partial_correlation", precision)
    return _unit_diagonal(precision, -1.0)
