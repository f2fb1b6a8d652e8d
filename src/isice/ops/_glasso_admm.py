"""The graphical lasso by ADMM, a batch at a time, each matrix with its own penalty parameter and certificate.

The problem here is standardized: min −logdet Θ + ⟨S, Θ⟩ + Σ Λ_ij|Θ_ij| with a unit diagonal in S and none in Λ.
Its dual is max logdet W + D over |W − S| ≤ Λ. The scaled dual variable U of ADMM gives W = S + ρU, which meets that
constraint by construction, so P(Z) − logdet W − D bounds the error of Z however inexact the steps were.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ._glasso_prox import prox_by_eigh, prox_by_newton_schulz

RELAXATION = 1.6
SETTLE = 50


class Solution(NamedTuple):
    """Primal Z (B, D, D), dual W (B, D, D), duality gap (B,) in float64, iterations (B,)."""

    precision: Tensor
    dual: Tensor
    gap: Tensor
    n_iter: Tensor


def log_determinant(matrix: Tensor) -> Tensor:
    """logdet in float64; −∞ where a matrix is not positive definite."""
    factor, info = torch.linalg.cholesky_ex(matrix.double())
    value = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return torch.where(info == 0, value, -math.inf)


def inverse_where_positive(matrix: Tensor, otherwise: Tensor) -> tuple[Tensor, Tensor]:
    """Inverses by Cholesky factors, ``otherwise`` where a matrix is not positive definite; and where it is."""
    factor, info = torch.linalg.cholesky_ex(matrix)
    positive = (info == 0)[:, None, None]
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    inverse = torch.cholesky_inverse(torch.where(positive, factor, identity))
    return torch.where(positive, 0.5 * (inverse + inverse.mT), otherwise), positive


def duality_gap(cov: Tensor, penalty: Tensor, precision: Tensor, dual: Tensor) -> Tensor:
    """P(Z) − logdet W − D per matrix, in float64, not below zero; ∞ where Z or W is not positive definite."""
    linear = _linear_part(cov, penalty, precision)
    gap = linear - log_determinant(precision) - log_determinant(dual) - cov.shape[-1]
    return torch.where(torch.isfinite(gap), gap.clamp(min=0.0), math.inf)


def _linear_part(cov: Tensor, penalty: Tensor, precision: Tensor) -> Tensor:
    return torch.addcmul(cov * precision, penalty, precision.abs()).sum((-2, -1), dtype=torch.float64)


def _may_be_done(cov: Tensor, penalty: Tensor, precision: Tensor, dual: Tensor, bound: Tensor) -> Tensor:
    """Where the second-order estimate of the gap, one product instead of two factorizations, is near ``bound``."""
    product = torch.bmm(precision, dual)
    trace = product.diagonal(dim1=-2, dim2=-1).sum(-1)
    curvature = 0.5 * ((product * product.mT).sum((-2, -1)) - 2 * trace + cov.shape[-1])
    slack = _linear_part(cov, penalty, precision) - trace
    return curvature + slack <= 2 * bound


def start(cov: Tensor, penalty: Tensor, init: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Z, U and ρ to begin with: the identity, or a given precision and the clipped inverse that belongs to it."""
    batch, size, _ = cov.shape
    rho = cov.new_ones(batch, 1, 1)
    if init is None:
        return torch.eye(size, dtype=cov.dtype, device=cov.device).repeat(batch, 1, 1), torch.zeros_like(cov), rho
    identity = torch.eye(size, dtype=cov.dtype, device=cov.device)
    inverse, usable = inverse_where_positive(init, identity)
    z = torch.where(usable, init, identity)
    u = torch.where(usable, torch.clamp(inverse - cov, -penalty, penalty), 0.0)
    norms = [torch.linalg.matrix_norm(m, keepdim=True) for m in (inverse, z)]
    rho = torch.where(usable, norms[0] / norms[1], 1.0)
    return z, u / rho, rho


def admm(
    cov: Tensor,
    penalty: Tensor,
    bound: Tensor,
    *,
    max_iter: int,
    init: Tensor | None = None,
    newton_schulz: bool = False,
) -> Solution:
    """Runs ADMM until the certified gap of each matrix is at most its ``bound``; finished matrices leave the batch.

    Args:
        cov: Standardized matrices (B, D, D).
        penalty: Λ (B, D, D) with a zero diagonal.
        bound: Largest accepted gap (B,).
        max_iter: Iterations after which the rest is returned as it stands.
        init: Precision matrices to start from.
        newton_schulz: Θ-step by products instead of an eigendecomposition.
    """
    batch = cov.shape[0]
    result = Solution(
        torch.empty_like(cov),
        torch.empty_like(cov),
        torch.full((batch,), math.inf, dtype=torch.float64, device=cov.device),
        torch.zeros(batch, dtype=torch.int64, device=cov.device),
    )
    z, u, rho = start(cov, penalty, init)
    index = torch.arange(batch, device=cov.device)
    for iteration in range(1, max_iter + 1):
        z, u, factor = _iterate(cov, penalty, z, u, rho, newton_schulz)
        last = iteration == max_iter
        gap = _gap_if_worthwhile(cov, penalty, z, u, rho, bound, newton_schulz and not last)
        leave = torch.isfinite(gap) & (gap <= bound) if not last else torch.ones_like(gap, dtype=torch.bool)
        if leave.any():
            gone = index[leave]
            result.precision[gone], result.dual[gone] = z[leave], _dual_point(cov, penalty, u, rho)[leave]
            result.gap[gone], result.n_iter[gone] = gap[leave], iteration
            if leave.all():
                break
            cov, penalty, z, u, rho, bound, factor, index = (
                t[~leave] for t in (cov, penalty, z, u, rho, bound, factor, index)
            )
        # A parameter that never settles could keep ADMM from converging, so late changes are damped.
        factor = factor ** min(1.0, SETTLE / iteration)
        rho = rho * factor
        u = u.div_(factor)
    return result


def _dual_point(cov: Tensor, penalty: Tensor, u: Tensor, rho: Tensor) -> Tensor:
    # ρU is in the box already, but for rounding; the certificate shall not rest on that.
    return torch.clamp(rho * u, -penalty, penalty).add_(cov)


def _gap_if_worthwhile(
    cov: Tensor, penalty: Tensor, z: Tensor, u: Tensor, rho: Tensor, bound: Tensor, estimate_first: bool
) -> Tensor:
    dual = _dual_point(cov, penalty, u, rho)
    if not estimate_first:
        return duality_gap(cov, penalty, z, dual)
    gap = torch.full_like(bound, math.inf)
    near = _may_be_done(cov, penalty, z, dual, bound)
    if near.any():
        gap[near] = duality_gap(cov[near], penalty[near], z[near], dual[near])
    return gap


def _iterate(
    cov: Tensor, penalty: Tensor, z: Tensor, u: Tensor, rho: Tensor, newton_schulz: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """One over-relaxed step; also the factor by which ρ should change to balance the relative residuals."""
    prox = prox_by_newton_schulz if newton_schulz else prox_by_eigh
    theta = prox(torch.sub(rho * (z - u), cov), rho)
    theta = 0.5 * (theta + theta.mT)  # exactly symmetric, so that the zeros of Z are
    u = u.add_(torch.lerp(z, theta, RELAXATION))
    threshold = penalty / rho
    clipped = torch.clamp(u, -threshold, threshold)
    z_new, u = u.sub_(clipped), clipped
    norm = torch.linalg.matrix_norm
    primal = norm(theta - z_new) / torch.maximum(norm(theta), norm(z_new))
    # The natural denominator ‖U‖ is tiny where λ is small, ‖W‖/ρ too large on singular input: their geometric mean
    # needs the fewest iterations over the whole range.
    dual_scale = torch.sqrt(norm(u) * norm(torch.addcmul(cov, rho, u)) / rho[:, 0, 0])
    tiny = torch.finfo(z.dtype).tiny
    change = (norm(z_new - z) / dual_scale.clamp(min=tiny)).clamp(min=tiny)
    factor = torch.sqrt(primal.clamp(min=tiny) / change).clamp(0.5, 2.0)
    return z_new, u, factor[:, None, None]
