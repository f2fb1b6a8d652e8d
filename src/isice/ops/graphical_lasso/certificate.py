"""Duality gap of the graphical lasso, exact and estimated, and its Cholesky factorizations."""

import math

import torch
from torch import Tensor

N_CHUNKS = 8
CHUNK_ENTRIES = 2**22  # matrix entries that a GPU certifies at a time: 32 MiB in float64


def chunks(batch: Tensor, size: int = 0) -> tuple[Tensor, ...]:
    """Split a batch so that its float64 copies and factors do not dominate the memory.

    Matrices with ``size`` > 0 rows on a GPU make larger chunks if they are small, because a
    factorization of a few small matrices takes as long as one of many.
    """
    few = CHUNK_ENTRIES // size**2 if size and batch.is_cuda else 8
    return torch.split(batch, max(8, few, -(-len(batch) // N_CHUNKS)))


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
    if cov.is_cuda:  # a batched factorization takes about as long for twice the matrices
        logdet_precision, logdet_dual = log_determinant(torch.cat([precision, dual])).chunk(2)
    else:
        logdet_precision, logdet_dual = log_determinant(precision), log_determinant(dual)
    return _gap(linear, cov.shape[-1], logdet_precision, logdet_dual)


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
    """Estimate the gap of an ADMM iterate to fourth order in E = ZW − I by two products.

    Where Z_ij ≠ 0 its dual is at the bound, so the linear part of the gap is exactly tr(ZW). The
    rest, tr(ZW) − D − logdet(ZW), is tr(E²)/2 − tr(E³)/3 + tr(E⁴)/4 to fourth order, which powers
    small numbers and does not cancel. A negative eigenvalue of ZW adds at least 13/12, so a small
    estimate excludes an indefinite Z.
    """
    error = torch.bmm(precision, dual)
    error.diagonal(dim1=-2, dim2=-1).sub_(1.0)
    square = torch.bmm(error, error)
    second = square.diagonal(dim1=-2, dim2=-1).sum(-1)
    third = error.mul_(square.mT).sum((-2, -1))
    fourth = torch.mul(square, square.mT, out=error).sum((-2, -1))
    return second / 2 - third / 3 + fourth / 4


def rough_gap(precision: Tensor, dual: Tensor, probes: Tensor) -> Tensor:
    """Estimate the same trace by random probes (P, D): a tenth of the cost, a rough value."""
    probes = probes.to(precision).expand(len(precision), -1, -1)
    left = torch.bmm(torch.bmm(probes, precision), dual).sub_(probes)
    right = torch.bmm(torch.bmm(probes, dual), precision).sub_(probes)
    return left.mul_(right).sum((-2, -1)).mul_(0.5)
