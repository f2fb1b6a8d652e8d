"""Where the graphical lasso's ADMM begins: at a given precision, else at a guess that costs one inverse."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .certificate import cholesky, inverse_where_positive
from .theta_step import half_prox_by_newton_schulz


class Start(NamedTuple):
    """Primal Z (B, D, D), dual W (B, D, D) and the penalty parameter ρ (B, 1, 1)."""

    precision: Tensor
    dual: Tensor
    rho: Tensor


def norm(matrix: Tensor) -> Tensor:
    """Frobenius norms (B, 1, 1)."""
    return torch.linalg.vector_norm(matrix, dim=(-2, -1), keepdim=True)


def cold_start(cov: Tensor, penalty: Tensor, *, by_factors: bool) -> Start:
    """W with every entry as near to zero as it may be, and its inverse.

    Where that W is near singular, (S + rI)⁻¹ with r = 0.6·λ√D instead, about the least eigenvalue of a solution
    that S leaves to the penalty, and W = S + Λ·sign of its entries, as it is at a solution.
    Where factors are slow, the root of Z⁻¹ − λZ/4 = W for the first W, which lies between the two inverses.
    """
    size = cov.shape[-1]
    sparsity = (penalty.sum((-2, -1), keepdim=True) / max(1, size * (size - 1))).clamp_(max=1.0)
    dual = cov - torch.clamp(cov, -penalty, penalty)
    if by_factors:
        # What signs at random on a D×D matrix add to its eigenvalues grows with √D.
        ridge = torch.minimum(0.6 * math.sqrt(size) * sparsity, 1.5 * sparsity.sqrt())
        precision, dual = _inverse_or_ridge(cov, penalty, dual, ridge)
    else:
        half = half_prox_by_newton_schulz(dual, 0.25 * sparsity)
        precision = half + half.mT
    return Start(precision, dual, _balanced(cov, precision, dual))


def _inverse_or_ridge(cov: Tensor, penalty: Tensor, dual: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor]:
    identity = torch.eye(cov.shape[-1], dtype=cov.dtype, device=cov.device)
    base = _plus_diagonal(cov, ridge)
    regular = (cholesky(_plus_diagonal(dual, -0.5 * ridge))[1] == 0)[:, None, None]
    if bool(regular.any()):
        base = torch.where(regular, dual, base)
    precision, _ = inverse_where_positive(base, identity)
    signed = torch.sign(precision, out=base).mul_(penalty).add_(cov)
    return precision, torch.where(regular, dual, signed) if bool(regular.any()) else signed


def _plus_diagonal(matrix: Tensor, value: Tensor) -> Tensor:
    matrix = matrix.clone()
    matrix.diagonal(dim1=-2, dim2=-1).add_(value.squeeze(-1))
    return matrix


def warm_start(cov: Tensor, penalty: Tensor, init: Tensor) -> Start:
    """A given precision and the clipped inverse that belongs to it."""
    identity = torch.eye(cov.shape[-1], dtype=cov.dtype, device=cov.device)
    inverse, usable = inverse_where_positive(init, identity)
    precision = torch.where(usable, init, identity)
    dual = inverse.sub_(cov).clamp_(-penalty, penalty).add_(cov)
    return Start(precision, dual, _balanced(cov, precision, dual))


def _balanced(cov: Tensor, precision: Tensor, dual: Tensor) -> Tensor:
    """The ρ at which ADMM's relative residuals balance near the solution."""
    rho = torch.sqrt(norm(dual - cov) * norm(cov)) / norm(precision)
    return torch.where(rho > 0, rho, 1.0)
