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

    def select(self, chosen: list[int]) -> "_State":
        """Some of the problems; all of them are not copied."""
        if len(chosen) == len(self.place):
            return self
        where = torch.tensor(chosen, device=self.place.device)
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
    # Who is checked when is kept in plain numbers: looking at them costs no wait for the device.
    active, check_at, limit = list(range(len(cov))), [next_check] * len(cov), bound.tolist()
    for iteration in range(1, max_iter + 1):
        state = _iterate(state, newton_schulz, iteration)
        last = iteration == max_iter
        if iteration < next_check and not last:
            continue
        due = [i for i in active if last or check_at[i] <= iteration]
        gaps = _gaps(state, due, [2 * value for value in limit] if newton_schulz and not last else None)
        done = {i: gap for i, gap in zip(due, gaps, strict=True) if last or gap <= limit[i]}
        for i, gap in zip(due, gaps, strict=True):
            check_at[i] = iteration + _iterations_left(gap / limit[i])
        if done:
            finished.append(_finish(state, done, iteration))
            active = [i for i in active if i not in done]
            if not active:
                break
            # Leaving costs copies: by products the finished wait until they are half of the batch.
            if not newton_schulz or 2 * len(active) <= len(limit):
                state, check_at, limit = state.select(active), [check_at[i] for i in active], [limit[i] for i in active]
                active = list(range(len(active)))
        next_check = min(check_at[i] for i in active)
    return _in_order(finished)


def _finish(state: _State, done: dict[int, float], iteration: int) -> tuple[Tensor, Solution]:
    out = state.select(list(done))
    gap = torch.tensor(list(done.values()), dtype=torch.float64, device=out.z.device)
    return out.place, Solution(out.z, out.dual(), gap, torch.full_like(out.place, iteration))


def _iterations_left(excess: float) -> int:
    """How many iterations a problem still needs at the very least: no run gained a digit in less than 1.3.

    Each problem keeps its own calendar, so its result does not depend on its companions in the batch.
    """
    return max(1, int(1.3 * math.log10(excess))) if 1 < excess < math.inf else 1


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


def _gaps(state: _State, due: list[int], worthwhile: list[float] | None) -> list[float]:
    """The certified gaps of the problems ``due``.

    Where products are cheap and factorizations are not, only estimates up to ``worthwhile`` are certified; above it the
    estimate itself is returned.
    """
    dual = state.dual()
    if worthwhile is None:
        return _certified(state, dual, due)
    estimates = _estimated_gap(state.cov, state.penalty, state.z, dual).tolist()
    near = [i for i in due if estimates[i] <= worthwhile[i]]
    certified = dict(zip(near, _certified(state, dual, near), strict=True))
    return [certified.get(i, estimates[i]) for i in due]


def _certified(state: _State, dual: Tensor, which: list[int]) -> list[float]:
    if not which:
        return []
    where = slice(None) if len(which) == len(dual) else torch.tensor(which, device=dual.device)
    return duality_gap(state.cov, state.penalty, state.z, dual, where).tolist()
