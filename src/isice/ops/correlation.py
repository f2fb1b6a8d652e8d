"""⑤ Covariance → correlation and precision → partial correlation: scaling to a unit diagonal."""

from typing import Any

import torch
from torch import Tensor

from .._checks import check_square
from ._linalg import NO_VARIANCE, add_diagonal_, out_of_place
from ._numerics import InputsSaved, full_precision


def correlation_reference(cov: Tensor) -> Tensor:
    """Compute Σ_ij/√(Σ_ii Σ_jj) for positive diagonals; the oracle of :func:`correlation`."""
    deviation = cov.diagonal(dim1=-2, dim2=-1).sqrt()
    return cov / (deviation.unsqueeze(-1) * deviation.unsqueeze(-2))


def _scaled(matrix: Tensor, sign: float) -> tuple[Tensor, Tensor]:
    """Return sign·M_ij/√(M_ii M_jj), zero on the diagonal, and 1/√M_ii; zero where M_ii ≤ 0."""
    diagonal = matrix.diagonal(dim1=-2, dim2=-1)
    floor = NO_VARIANCE * diagonal.amax(-1, keepdim=True).clamp_min(NO_VARIANCE)
    positive = diagonal > floor
    scale = torch.where(positive, torch.where(positive, diagonal, 1.0).rsqrt(), 0.0)
    return _off_diagonal(matrix * (sign * scale).unsqueeze(-1) * scale.unsqueeze(-2)), scale


def _off_diagonal(matrix: Tensor) -> Tensor:
    return matrix * ~torch.eye(matrix.shape[-1], dtype=torch.bool, device=matrix.device)


class _UnitDiagonal(InputsSaved):
    """sign·M_ij/√(M_ii M_jj) with a unit diagonal; rows with M_ii ≤ 0 become rows of I.

    Keeps its input only; the backward pass is made of differentiable operations.
    """

    @staticmethod
    def forward(matrix: Tensor, sign: float) -> Tensor:
        return out_of_place(add_diagonal_(_scaled(matrix, sign)[0], 1.0))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (matrix,), (sign,), grad = ctx.saved_tensors, ctx.options, _off_diagonal(grads[0])
        with torch.autocast(matrix.device.type, enabled=False):
            out, scale = _scaled(matrix, sign)
            moment = (grad * out).sum(-1) + (grad * out).sum(-2)
            result = grad * (sign * scale).unsqueeze(-1) * scale.unsqueeze(-2)
            return result + torch.diag_embed(-0.5 * moment * scale.square()), None


@full_precision
def correlation(cov: Tensor) -> Tensor:
    """Compute correlation matrices (..., D, D); variables without variance get zero correlations.

    Example:
        >>> correlation(torch.tensor([[4.0, 1.0], [1.0, 1.0]]))
        tensor([[1.0000, 0.5000],
                [0.5000, 1.0000]])
    """
    check_square("correlation", cov)
    out: Tensor = _UnitDiagonal.apply(cov, 1.0)
    return out


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
    out: Tensor = _UnitDiagonal.apply(precision, -1.0)
    return out
