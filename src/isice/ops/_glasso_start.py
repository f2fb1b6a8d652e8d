"""Where the graphical lasso's ADMM begins: at a given precision, else at a guess that costs one inverse."""

from typing import NamedTuple

import torch
from torch import Tensor

from ._glasso_certificate import inverse_where_positive
from ._glasso_prox import half_prox_by_newton_schulz


class Start(NamedTuple):
    """Primal Z (B, D, D), dual W (B, D, D) and the penalty parameter ρ (B, 1, 1)."""

    precision: Tensor
    dual: Tensor
    rho: Tensor


def norm(matrix: Tensor) -> Tensor:
    """Frobenius norms (B, 1, 1)."""
    return torch.linalg.vector_norm(matrix, dim=(-2, -1), keepdim=True)


def cold_start(cov: Tensor, penalty: Tensor, *, by_factors: bool) -> Start:
    """W with every entry as near to zero as it may be, and a regularized inverse of it.

    The inverse is W⁻¹, or (S + √λ I)⁻¹ where W is near singular; where factors are slow it is the root of
    Z⁻¹ − λZ/4 = W, which lies between them and needs as many iterations.
    """
    size = cov.shape[-1]
    sparsity = (penalty.sum((-2, -1), keepdim=True) / max(1, size * (size - 1))).clamp_(max=1.0)
    dual = cov - torch.clamp(cov, -penalty, penalty)
    if by_factors:
        precision = _inverse_or_ridge(cov, dual, torch.sqrt(sparsity))
    else:
        half = half_prox_by_newton_schulz(dual, 0.25 * sparsity)
        precision = half + half.mT
    return Start(precision, dual, _balanced(cov, precision, dual))


def _inverse_or_ridge(cov: Tensor, dual: Tensor, ridge: Tensor) -> Tensor:
    identity = torch.eye(cov.shape[-1], dtype=cov.dtype, device=cov.device)
    regular = torch.linalg.cholesky_ex(dual - 0.5 * ridge * identity).info == 0
    base = torch.where(regular[:, None, None], dual, cov + ridge * identity)
    return inverse_where_positive(base, identity)[0]


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
