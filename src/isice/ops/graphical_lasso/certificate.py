"""Duality gap of the graphical lasso, exact and to second order, and the Cholesky factors behind it."""

import math

import torch
from torch import Tensor

PARTS = 8


def in_parts(batch: Tensor) -> tuple[Tensor, ...]:
    """Cuts a batch where its copies in float64, or its factors, would else be the largest thing in memory."""
    return batch.split(max(8, -(-len(batch) // PARTS)))


def cholesky(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Cholesky factors, and 0 per matrix that has one.

    Where rows lie a power of two apart, a cache holds few of them at a time, and a CPU needs up to twice as long: there
    the matrix is factored with one more variable.
    """
    size = matrix.shape[-1]
    if matrix.is_cuda or size % 128 != 0:
        return torch.linalg.cholesky_ex(matrix)
    padded = matrix.new_empty(len(matrix), size + 1, size + 1)
    padded[:, :size, :size] = matrix
    padded[:, size].zero_()
    padded[:, :size, size].zero_()
    padded[:, size, size] = 1.0
    factor, info = torch.linalg.cholesky_ex(padded)
    return factor[:, :size, :size], info


def log_determinant(matrix: Tensor) -> Tensor:
    """logdet in float64; −∞ where a matrix is not positive definite."""
    return _log_determinant(*cholesky(matrix.double()))


def inverse_where_positive(matrix: Tensor, otherwise: Tensor) -> tuple[Tensor, Tensor]:
    """Inverses by Cholesky factors, ``otherwise`` where a matrix is not positive definite; and where it is."""
    factor, info = cholesky(matrix)
    return _inverse(factor, info, otherwise), (info == 0)[:, None, None]


def duality_gap(cov: Tensor, penalty: Tensor, precision: Tensor, dual: Tensor) -> Tensor:
    """P(Z) − logdet W − D per matrix, in float64, not below zero; ∞ if Z or W is not positive definite."""
    return _gap(cov, penalty, precision, log_determinant(precision), log_determinant(dual))


def duality_gap_and_inverse(cov: Tensor, penalty: Tensor, precision: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
    """The same in float64, and the inverse of Z (W where Z is not positive definite) from the one factor of Z."""
    factor, info = cholesky(precision)
    gap = _gap(cov, penalty, precision, _log_determinant(factor, info), log_determinant(dual))
    return gap, _inverse(factor, info, dual)


def _gap(cov: Tensor, penalty: Tensor, precision: Tensor, logdet_precision: Tensor, logdet_dual: Tensor) -> Tensor:
    gap = linear_part(cov, penalty, precision) - logdet_precision - logdet_dual - cov.shape[-1]
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


def linear_part(cov: Tensor, penalty: Tensor, precision: Tensor) -> Tensor:
    """⟨S, Z⟩ + Σ Λ_ij|Z_ij| per matrix, in float64; the rows are summed as they are."""
    return precision.abs().mul_(penalty).addcmul_(cov, precision).sum(-1).sum(-1, dtype=torch.float64)


def estimated_gap(precision: Tensor, dual: Tensor) -> Tensor:
    """The gap of an iterate of ADMM to second order in ZW − I, by one product instead of two factorizations.

    Where an entry of Z is not zero, its dual is at the bound, so the linear part of the gap is tr(ZW) exactly, and
    tr(ZW) − D − logdet(ZW) is tr((ZW − I)²)/2 to second order: small numbers are squared, not the rest of large ones.
    An eigenvalue of ZW below zero alone adds half, so a small estimate does not hide an indefinite Z.
    """
    product = torch.bmm(precision, dual)
    product.diagonal(dim1=-2, dim2=-1).sub_(1.0)
    return torch.mul(product, product.mT).sum((-2, -1)).mul_(0.5)


def rough_gap(precision: Tensor, dual: Tensor, probes: Tensor) -> Tensor:
    """The same from the images of a few random vectors (P, D), a tenth of the price: good to some ten per cent."""
    probes = probes.to(precision).expand(len(precision), -1, -1)
    left = torch.bmm(torch.bmm(probes, precision), dual).sub_(probes)
    right = torch.bmm(torch.bmm(probes, dual), precision).sub_(probes)
    return left.mul_(right).sum((-2, -1)).mul_(0.5)
