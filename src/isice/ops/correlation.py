"""⑤ Covariance → correlation and precision → partial correlation: scaling to a unit diagonal."""

from typing import Any

import torch
from torch import Tensor

from .._checks import check_square
from ._linalg import NO_VARIANCE, add_diagonal, add_diagonal_, out_of_place
from ._numerics import InputsSaved, full_precision


def correlation_reference(cov: Tensor) -> Tensor:
    """Compute Σ_ij/√(Σ_ii Σ_jj) for positive diagonals; the oracle of :func:`correlation`."""
    deviation = cov.diagonal(dim1=-2, dim2=-1).sqrt()
    return cov / (deviation.unsqueeze(-1) * deviation.unsqueeze(-2))


def _inverse_deviation(matrix: Tensor) -> Tensor:
    """Return 1/√M_ii (..., D), zero where M_ii ≤ 0."""
    diagonal = matrix.diagonal(dim1=-2, dim2=-1)
    floor = NO_VARIANCE * diagonal.amax(-1, keepdim=True).clamp_min(NO_VARIANCE)
    positive = diagonal > floor
    return torch.where(positive, torch.where(positive, diagonal, 1.0).rsqrt(), 0.0)


def _scaled_off_diagonal(matrix: Tensor, scale: Tensor, sign: float) -> Tensor:
    """Return sign·s_i M_ij s_j, with zeros on the diagonal."""
    scaled = matrix * (sign * scale).unsqueeze(-1) * scale.unsqueeze(-2)
    return add_diagonal_(scaled, -scaled.diagonal(dim1=-2, dim2=-1).unsqueeze(-1))


class _UnitDiagonal(InputsSaved):
    """sign·M_ij/√(M_ii M_jj) with a unit diagonal; rows with M_ii ≤ 0 become rows of I.

    Keeps its input only; the backward pass is made of differentiable operations.
    """

    @staticmethod
    def forward(matrix: Tensor, sign: float) -> Tensor:
        scaled = _scaled_off_diagonal(matrix, _inverse_deviation(matrix), sign)
        return out_of_place(add_diagonal_(scaled, 1.0))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (matrix,), (sign,) = ctx.saved_tensors, ctx.options
        with torch.autocast(matrix.device.type, enabled=False):
            scale = _inverse_deviation(matrix)
            result = _scaled_off_diagonal(grads[0], scale, sign)
            product = result * matrix
            moment = product.sum(-1) + product.sum(-2)
            return add_diagonal(result, (-0.5 * moment * scale.square()).unsqueeze(-1)), None


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

    The diagonal is set to one. Variables whose Ω_ii is at most 1e-14 of the largest get zero
    partial correlations.

    Example:
        >>> partial_correlation(torch.tensor([[4.0, -1.0], [-1.0, 1.0]]))
        tensor([[1.0000, 0.5000],
                [0.5000, 1.0000]])
    """
    check_square("partial_correlation", precision)
    out: Tensor = _UnitDiagonal.apply(precision, -1.0)
    return out
