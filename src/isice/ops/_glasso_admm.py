"""The graphical lasso by ADMM, a batch at a time, each matrix with its own penalty parameter and certificate.

The problem here is standardized: min −logdet Θ + ⟨S, Θ⟩ + Σ Λ_ij|Θ_ij| with a unit diagonal in S and none in Λ.
Its dual is max logdet W + D over |W − S| ≤ Λ. The scaled dual variable U of ADMM gives W = S + ρU, which meets that
constraint by construction, so P(Z) − logdet W − D bounds the error of Z however inexact the steps were.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ._glasso_prox import half_prox_by_eigh, half_prox_by_newton_schulz

RELAXATION = 1.6
SETTLE = 100
FIRST_CHECK = 3


class Solution(NamedTuple):
    """Primal Z (B, D, D), dual W (B, D, D), duality gap (B,) in float64, iterations (B,)."""

    precision: Tensor
    dual: Tensor
    gap: Tensor
    n_iter: Tensor


def log_determinant(matrix: Tensor) -> Tensor:
    """logdet in float64; −∞ where a matrix is not positive definite."""
    # In parts on CUDA, where the copies in float64 would else be the largest thing in memory.
    values = []
    for part in matrix.chunk(4) if matrix.is_cuda else (matrix,):
        factor, info = torch.linalg.cholesky_ex(part.double())
        value = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        values.append(torch.where(info == 0, value, -math.inf))
    return torch.cat(values)


def inverse_where_positive(matrix: Tensor, otherwise: Tensor) -> tuple[Tensor, Tensor]:
    """Inverses by Cholesky factors, ``otherwise`` where a matrix is not positive definite; and where it is."""
    factor, info = torch.linalg.cholesky_ex(matrix)
    positive = (info == 0)[:, None, None]
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    inverse = torch.cholesky_inverse(torch.where(positive, factor, identity))
    return torch.where(positive, 0.5 * (inverse + inverse.mT), otherwise), positive


def duality_gap(
    cov: Tensor, penalty: Tensor, precision: Tensor, dual: Tensor, where: Tensor | slice = slice(None)
) -> Tensor:
    """P(Z) − logdet W − D per matrix ``where``, in float64, not below zero; ∞ if Z or W is not positive definite."""
    linear = _linear_part(cov, penalty, precision)[where]
    gap = linear - log_determinant(precision[where]) - log_determinant(dual[where]) - cov.shape[-1]
    return torch.where(torch.isfinite(gap), gap.clamp(min=0.0), math.inf)


def _linear_part(cov: Tensor, penalty: Tensor, precision: Tensor) -> Tensor:
    return torch.addcmul(cov * precision, penalty, precision.abs()).sum((-2, -1), dtype=torch.float64)


def _estimated_gap(cov: Tensor, penalty: Tensor, precision: Tensor, dual: Tensor) -> Tensor:
    """The gap to second order, by one product instead of two factorizations."""
    product = torch.bmm(precision, dual)
    trace = product.diagonal(dim1=-2, dim2=-1).sum(-1)
    curvature = 0.5 * (torch.mul(product, product.mT).sum((-2, -1)) - 2 * trace + cov.shape[-1])
    return _linear_part(cov, penalty, precision) + curvature - trace


class _State(NamedTuple):
    """The unfinished problems: their data, their iterates and their place in the batch."""

    cov: Tensor
    penalty: Tensor
    bound: Tensor
    size: Tensor  # ‖S‖ (B, 1, 1)
    z: Tensor
    u: Tensor
    rho: Tensor
    place: Tensor

    def dual(self) -> Tensor:
        """W = S + ρU. It is in the box already, but for rounding; the certificate shall not rest on that."""
        return (self.rho * self.u).clamp_(-self.penalty, self.penalty).add_(self.cov)

    def select(self, chosen: Tensor) -> "_State":
        """Some of the problems; all of them are not copied."""
        if bool(chosen.all()):
            return self
        where = chosen.nonzero().squeeze(-1).to(self.cov.device)
        return _State(*(tensor[where] for tensor in self))


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
    state, finished = _start(cov, penalty, bound, init), []
    next_check = FIRST_CHECK if init is None else 1
    # What decides about checks is kept on the host: it costs no wait to look at.
    active, check_at, limit = torch.ones(len(cov), dtype=torch.bool), torch.full((len(cov),), next_check), bound.cpu()
    for iteration in range(1, max_iter + 1):
        state = _iterate(state, newton_schulz, iteration)
        last = iteration == max_iter
        if iteration < next_check and not last:
            continue
        due = active & ((check_at <= iteration) | last)
        gap = _gaps(state, due, None if last or not newton_schulz else 2 * limit)
        done = due & ((gap <= limit) | last)
        check_at = torch.where(due, iteration + _iterations_left(gap / limit), check_at)
        if bool(done.any()):
            finished.append(_finish(state, gap, done, iteration))
            active = active & ~done
            if not bool(active.any()):
                break
            # Leaving costs copies: by products the finished wait until they are half of the batch.
            if not newton_schulz or 2 * int(active.sum()) <= len(active):
                state = state.select(active)
                check_at, limit, active = check_at[active], limit[active], active[active]
        next_check = int(check_at[active].min())
    return _in_order(finished)


def _finish(state: _State, gap: Tensor, done: Tensor, iteration: int) -> tuple[Tensor, Solution]:
    out = state.select(done)
    certified = gap[done].to(out.z.device)
    return out.place, Solution(out.z, out.dual(), certified, torch.full_like(out.place, iteration))


def _iterations_left(excess: Tensor) -> Tensor:
    """How many iterations each problem still needs at the very least: no run gained a digit in less than 1.3.

    Each problem keeps its own calendar, so its result does not depend on its companions in the batch.
    """
    return torch.nan_to_num(1.3 * torch.log10(excess), nan=1.0, posinf=1.0, neginf=1.0).long().clamp(min=1)


def _in_order(finished: list[tuple[Tensor, Solution]]) -> Solution:
    """Puts the solutions back into the order of the batch."""
    if len(finished) == 1:
        return finished[0][1]
    order = torch.argsort(torch.cat([place for place, _ in finished]))
    parts = zip(*(solution for _, solution in finished), strict=True)
    return Solution(*(torch.cat(tensors)[order] for tensors in parts))


def _start(cov: Tensor, penalty: Tensor, bound: Tensor, init: Tensor | None) -> _State:
    """Z, U and ρ to begin with: the identity, or a given precision and the clipped inverse that belongs to it."""
    batch, size, _ = cov.shape
    identity = torch.eye(size, dtype=cov.dtype, device=cov.device)
    place = torch.arange(batch, device=cov.device)
    if init is None:
        z, u, rho = identity.repeat(batch, 1, 1), torch.zeros_like(cov), cov.new_ones(batch, 1, 1)
        return _State(cov, penalty, bound, _norm(cov), z, u, rho, place)
    inverse, usable = inverse_where_positive(init, identity)
    z = torch.where(usable, init, identity)
    u = torch.clamp(inverse - cov, -penalty, penalty)
    rho = torch.sqrt(_norm(u) * _norm(cov)) / _norm(z)  # the size it balances at, see _iterate
    rho = torch.where(rho > 0, rho, 1.0)
    u = u / rho
    return _State(cov, penalty, bound, _norm(cov), z, u, rho, place)


def _iterate(state: _State, newton_schulz: bool, iteration: int) -> _State:
    """One over-relaxed step, then the ρ that balances the relative residuals of each problem."""
    cov, penalty, _, size, z, u, rho, _ = state
    half_prox = half_prox_by_newton_schulz if newton_schulz else half_prox_by_eigh
    half = half_prox(torch.addcmul(cov, rho, u - z), rho)
    theta = half + half.mT
    u.add_(torch.lerp(z, theta, RELAXATION))
    threshold = penalty / rho
    u_new = torch.clamp(u, -threshold, threshold)
    z_new = u.sub_(u_new)
    primal = _norm(theta.sub_(z_new)) / _norm(z_new)
    # The natural unit of the dual change, ‖U‖, is tiny where λ is small; ‖W‖/ρ is too large on singular input. Their
    # geometric mean needs the fewest iterations over the whole range. ‖S‖ stands for ‖W‖.
    dual = _norm(z_new - z) / torch.sqrt(_norm(u_new) * size / rho)
    factor = torch.sqrt(primal / dual).nan_to_num_(1.0).clamp_(0.5, 2.0)
    if iteration > SETTLE:  # a parameter that never settles could keep ADMM from converging
        factor = factor.pow_(SETTLE / iteration)
    return state._replace(z=z_new, u=u_new.div_(factor), rho=rho * factor)


def _norm(matrix: Tensor) -> Tensor:
    return torch.linalg.vector_norm(matrix, dim=(-2, -1), keepdim=True)


def _gaps(state: _State, due: Tensor, worthwhile: Tensor | None) -> Tensor:
    """The certified gaps of the problems that are ``due``, on the host; ∞ for the others.

    Where products are cheap and factorizations are not, only estimates up to ``worthwhile`` are certified; above it the
    estimate itself is returned.
    """
    dual, gap = state.dual(), torch.full(due.shape, math.inf, dtype=torch.float64)
    if worthwhile is not None:
        estimate = _estimated_gap(state.cov, state.penalty, state.z, dual).cpu()
        gap = torch.where(due, estimate, gap)
        due = due & (estimate <= worthwhile)
    if bool(due.any()):
        where = slice(None) if bool(due.all()) else due.nonzero().squeeze(-1).to(dual.device)
        gap[due] = duality_gap(state.cov, state.penalty, state.z, dual, where).cpu()
    return gap
