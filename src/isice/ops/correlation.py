"""⑤ Covariance → correlation, precision → partial correlation: the scale of each variable removed, unit diagonal."""

import torch
from torch import Tensor

from .._checks import check_choice, check_int, check_number, check_square
from ._precision import full_precision
from ._trace import NO_VARIANCE, add_diagonal_, normalize_trace
from .newton_schulz import newton_schulz_inverse


def correlation_reference(cov: Tensor) -> Tensor:
    """Σ_ij/√(Σ_ii Σ_jj) written out; needs a positive diagonal. The oracle of :func:`correlation`."""
    deviation = cov.diagonal(dim1=-2, dim2=-1).sqrt()
    return cov / (deviation.unsqueeze(-1) * deviation.unsqueeze(-2))


def _unit_diagonal(matrix: Tensor, sign: float) -> Tensor:
    """sign·M_ij/√(M_ii M_jj) off the diagonal, one on it; rows whose diagonal is not positive are zero off it."""
    diagonal = matrix.diagonal(dim1=-2, dim2=-1)
    floor = NO_VARIANCE * diagonal.amax(-1, keepdim=True).clamp_min(NO_VARIANCE)
    positive = diagonal > floor
    scale = torch.where(positive, torch.where(positive, diagonal, 1.0).rsqrt(), 0.0)
    scaled = sign * scale.unsqueeze(-1) * matrix * scale.unsqueeze(-2)
    off_diagonal = ~torch.eye(matrix.shape[-1], dtype=torch.bool, device=matrix.device)
    return add_diagonal_(scaled * off_diagonal, 1.0)


@full_precision
def correlation(cov: Tensor) -> Tensor:
    """Correlation matrices (..., D, D); a variable without variance correlates with nothing.

    Example:
        >>> correlation(torch.tensor([[4.0, 1.0], [1.0, 1.0]]))
        tensor([[1.0000, 0.5000],
                [0.5000, 1.0000]])
    """
    check_square("correlation", cov)
    return _unit_diagonal(cov, 1.0)


@full_precision
def partial_correlation(precision: Tensor) -> Tensor:
    """Partial correlations −Ω_ij/√(Ω_ii Ω_jj) of precision matrices (..., D, D), with a unit diagonal (paper, Sec. 3).

    Example:
        >>> partial_correlation(torch.tensor([[4.0, -1.0], [-1.0, 1.0]]))
        tensor([[1.0000, 0.5000],
                [0.5000, 1.0000]])
    """
    check_square("partial_correlation", precision)
    return _unit_diagonal(precision, -1.0)


@full_precision
def regularized_precision(cov: Tensor, *, method: str = "newton_schulz", n_iter: int = 7, ridge: float = 1.0) -> Tensor:
    """An inverse of Σ' = Σ/tr Σ that also exists for a singular Σ.

    Args:
        cov: Covariance matrices (..., D, D).
        method: ``"newton_schulz"`` stops the iteration after ``n_iter`` steps, which caps the inverse's eigenvalues;
            ``"ridge"`` is the exact inverse of D·Σ' + ridge·I (mean eigenvalue of D·Σ': one).
        n_iter: Steps of ``"newton_schulz"``.
        ridge: Diagonal weight of ``"ridge"``, positive.

    Example:
        >>> regularized_precision(torch.eye(2), method="ridge", ridge=1.0)
        tensor([[0.5000, 0.0000],
                [0.0000, 0.5000]])
    """
    check_square("regularized_precision", cov)
    check_choice("regularized_precision", "method", method, ("newton_schulz", "ridge"))
    check_int("regularized_precision", "n_iter", n_iter, minimum=1)
    check_number("regularized_precision", "ridge", ridge, strict=True)
    flat = cov.reshape(-1, *cov.shape[-2:])
    sigma = normalize_trace(flat).matrix
    if method == "newton_schulz":
        return newton_schulz_inverse(sigma, n_iter).reshape(cov.shape)
    return torch.linalg.inv(add_diagonal_(sigma * cov.shape[-1], ridge)).reshape(cov.shape)
