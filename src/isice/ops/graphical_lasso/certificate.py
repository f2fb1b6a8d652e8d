"""Duality gap of the graphical lasso, exact and estimated, and its Cholesky factorizations."""

import math

import torch
from torch import Tensor

N_CHUNKS = 8


def chunks(batch: Tensor) -> tuple[Tensor, ...]:
    """Split a batch so that its float64 copies and factors do not dominate the memory."""
    return torch.split(batch, max(8, -(-len(batch) // N_CHUNKS)))


def rows(batch: Tensor, index: Tensor) -> Tensor:
    """Return some matrices of a batch, in its order, without a copy if they are all of them."""
    return batch if len(index) == len(batch) else batch[index]


def cholesky(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return Cholesky factors and, per matrix, 0 if it is positive definite.

    On a CPU, rows a power of two apart share cache sets, which slows LAPACK up to twofold. Such
    matrices are padded with one more variable.
    """
    size = matrix.shape[-1]
    if matrix.is_cuda or size % 128 != 0:
        factor, info = torch.linalg.cholesky_ex(matrix)
        return factor, info
    padded = matrix.new_empty(len(matrix), size + 1, size + 1)
    padded[:, :size, :size] = matrix
    padded[:, size].zero_()
    padded[:, :size, size].zero_()
    padded[:, size, size] = 1.0
    factor, info = torch.linalg.cholesky_ex(padded)
    return factor[:, :size, :size], info


def log_determinant(matrix: Tensor) -> Tensor:
    """Return logdet in float64; −∞ where a matrix is not positive definite."""
    return _log_determinant(*cholesky(matrix.double()))


def inverse_if_positive(matrix: Tensor, otherwise: Tensor) -> tuple[Tensor, Tensor]:
    """Return Cholesky inverses, ``otherwise`` where not positive definite, and where they are."""
    factor, info = cholesky(matrix)
    return _inverse(factor, info, otherwise), (info == 0)[:, None, None]


def inverse_and_objective(cov: Tensor, penalty: Tensor, base: Tensor) -> tuple[Tensor, Tensor]:
    """Return Z = base⁻¹ and its objective P(Z); I and ∞ where the base is not positive definite."""
    factor, info = cholesky(base)
    inverse = _inverse(factor, info, torch.eye(base.shape[-1], dtype=base.dtype, device=base.device))
    objective = _linear(cov, penalty, inverse) + _log_determinant(factor, info)
    return inverse, torch.where(info == 0, objective, math.inf)


def duality_gap(cov: Tensor, penalty: Tensor, precision: Tensor, dual: Tensor) -> Tensor:
    """Return P(Z) − logdet W − D ≥ 0 in float64; ∞ if Z or W is not positive definite."""
    linear = _linear(cov, penalty, precision)
    return _gap(linear, cov.shape[-1], log_determinant(precision), log_determinant(dual))


def duality_gap_and_inverse(cov: Tensor, penalty: Tensor, precision: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
    """Return :func:`duality_gap` and Z⁻¹, W if Z is not positive definite, from one factor of Z."""
    factor, info = cholesky(precision)
    gap = gap_of_factors(_linear(cov, penalty, precision), (factor, info), cholesky(dual))
    return gap, _inverse(factor, info, dual)


def gap_of_factors(linear: Tensor, factor: tuple[Tensor, Tensor], dual_factor: tuple[Tensor, Tensor]) -> Tensor:
    """Return :func:`duality_gap` from ⟨S, Z⟩ + Σ Λ_ij|Z_ij| and :func:`cholesky` of Z and W."""
    size = factor[0].shape[-1]
    return _gap(linear, size, _log_determinant(*factor), _log_determinant(*dual_factor))


def _linear(cov: Tensor, penalty: Tensor, precision: Tensor) -> Tensor:
    """Return ⟨S, Z⟩ + Σ Λ_ij|Z_ij|, rows in the input's dtype and their sum in float64."""
    return precision.abs().mul_(penalty).addcmul_(cov, precision).sum(-1).sum(-1, dtype=torch.float64)


def _gap(linear: Tensor, size: int, logdet_precision: Tensor, logdet_dual: Tensor) -> Tensor:
    gap = linear - logdet_precision - logdet_dual - size
    return torch.where(torch.isfinite(gap), gap.clamp(min=0.0), math.inf)


def _log_determinant(factor: Tensor, info: Tensor) -> Tensor:
    value = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return torch.where(info == 0, value, -math.inf)


def _inverse(factor: Tensor, info: Tensor, otherwise: Tensor) -> Tensor:
    positive = (info == 0)[:, None, None]
    if not bool(positive.all()):
        factor = torch.where(positive, factor, torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device))
    half = torch.cholesky_inverse(factor).mul_(0.5)
    inverse = half.mT + half  # in this order the result is contiguous
    return inverse if bool(positive.all()) else torch.where(positive, inverse, otherwise)


def estimated_gap(precision: Tensor, dual: Tensor) -> Tensor:
    """Estimate the gap of an ADMM iterate to second order in ZW − I by one product.

    Where Z_ij ≠ 0 its dual is at the bound, so the linear part of the gap is exactly tr(ZW). The
    rest, tr(ZW) − D − logdet(ZW), is tr((ZW − I)²)/2 to second order, which squares small numbers
    and does not cancel. A negative eigenvalue of ZW adds at least one half, so a small estimate
    excludes an indefinite Z.
    """
    product = torch.bmm(precision, dual)
    product.diagonal(dim1=-2, dim2=-1).sub_(1.0)
    return torch.mul(product, product.mT).sum((-2, -1)).mul_(0.5)


def rough_gap(precision: Tensor, dual: Tensor, probes: Tensor) -> Tensor:
    """Estimate the same trace by random probes (P, D): a tenth of the cost, a rough value."""
    probes = probes.to(precision).expand(len(precision), -1, -1)
    left = torch.bmm(torch.bmm(probes, precision), dual).sub_(probes)
    right = torch.bmm(torch.bmm(probes, dual), precision).sub_(probes)
    return left.mul_(right).sum((-2, -1)).mul_(0.5)
