"""Batched ADMM for the graphical lasso, with a parameter ρ and a certificate per matrix.

The problem is standardized: min −logdet Θ + ⟨S, Θ⟩ + Σ Λ_ij|Θ_ij| with a unit diagonal in S and a
zero one in Λ. Its dual is max logdet W + D over |W − S| ≤ Λ. The dual variable V of ADMM gives a
feasible W = S + V, so P(Z) − logdet W − D bounds the suboptimality of Z even if the steps are
inexact.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from .._linalg import trace
from .certificate import chunks, duality_gap, estimated_gap, rough_gap, rows
from .lyapunov import DEFLATED_SIZE, first_probes, frobenius_norm, random_probes
from .start import Start
from .theta_step import (
    EIGH_SIZE,
    Guard,
    correct_theta_,
    half_theta_by_eigh,
    half_theta_by_newton_schulz,
)

RELAXATION = 1.6
SETTLE = 100  # iterations after which ρ changes less and less, which convergence requires
ACCELERATE, ACCELERATE_WARM = 8, 2  # iterations after which a cold and a warm start are accelerated
RESTART = 60  # iterations after which ρ is balanced and the acceleration starts afresh
MEMORY, MEMORY_ALONE = 5, 8  # images that the acceleration combines: of each matrix of a batch, of one matrix
MEMORY_BYTES = 2**25  # of one matrix's images, which limits those of D = 1000 to four in float64
MAX_GROWTH = 2.0  # of the move, above which an extrapolation has failed
MAX_WAIT = 12  # iterations between two checks of a gap
STALLED = 20  # iterations without halving the gap after which rounding prevents progress


@dataclass(frozen=True)
class Strategy:
    """Algorithms for the parts of the solver; the solution is the same up to the tolerance.

    Attributes:
        theta_step: Θ-step from scratch: by an eigendecomposition or by matrix products.
        reuse_theta: Whether a Θ-step first tries to correct the previous Θ.
        inverse: How the start and the returned covariance are inverted: by Cholesky factors or by
            matrix products.
        float32_first: Whether float64 problems are first solved in float32.
        certificate: Whether ADMM stops on the duality gap itself or on an estimate of it.
        stop_stalled: Whether ADMM returns matrices whose gap no longer decreases.
        accelerate: Whether long runs are accelerated, which doubles the memory.
        warm: Whether the start is close to the solution.
    """

    theta_step: Literal["eigh", "newton_schulz"]
    reuse_theta: bool = False
    inverse: Literal["cholesky", "products"] = "cholesky"
    float32_first: bool = False
    certificate: Literal["exact", "estimate"] = "exact"
    stop_stalled: bool = False
    accelerate: bool = False
    warm: bool = False

    @classmethod
    def fastest(cls, cov: Tensor) -> "Strategy":
        """Return the measured best choice for matrices of this size, dtype and device."""
        size, cuda = cov.shape[-1], cov.is_cuda
        products = cuda or 32 < size <= EIGH_SIZE
        reuse = not cuda and size > 16  # on CUDA the many small kernels of a correction dominate
        return cls(
            theta_step="newton_schulz" if products else "eigh",
            reuse_theta=reuse,
            inverse="products" if cuda else "cholesky",
            float32_first=cuda or reuse,
            accelerate=cov.dtype == torch.float64,
        )


class Solution(NamedTuple):
    """Primal Z, dual W (B, D, D), gap (B,) in float64, iterations (B,) and ρ (B, 1, 1)."""

    precision: Tensor
    dual: Tensor
    gap: Tensor
    n_iter: Tensor
    rho: Tensor

    def start(self, index: Tensor, dtype: torch.dtype) -> Start:
        """Return the selected matrices as a starting point."""
        return Start(*(rows(tensor, index).to(dtype) for tensor in (self.precision, self.dual, self.rho)))


class Anderson:
    """Anderson acceleration of the fixed-point iteration of V + ρZ, which needs a constant ρ.

    The next point is the affine combination of the last images whose moves cancel best. If the move
    from it is longer than the last one, its matrix goes back to the last image.
    """

    def __init__(self) -> None:
        self.count, self.memory = 0, MEMORY
        self.moves = self.images = self.gram = torch.empty(0)  # (B, memory, D²), and inner products of the moves

    def extrapolate_(self, point: Tensor, image: Tensor) -> None:
        """Overwrite the image (B, D, D) of a point by the next point, and the point."""
        flat = image.flatten(1)
        if self.count == 0:
            self._allocate(flat)
        slot, last = self.count % self.memory, (self.count - 1) % self.memory
        move = torch.sub(flat, point.flatten(1), out=self.moves[:, slot])
        self.images[:, slot] = flat
        products = torch.bmm(self.moves, move[:, :, None])
        failed = products[:, slot, 0] > (MAX_GROWTH**2 * self.gram[:, last, last] if self.count else math.inf)
        self.gram[:, slot], self.gram[:, :, slot] = products[:, :, 0], products[:, :, 0]
        if bool(failed.any()):
            self.moves[failed], self.images[failed] = (m[failed, last : last + 1] for m in (self.moves, self.images))
            self.gram[failed] = self.gram[failed, last, last][:, None, None]
        self.count += 1
        torch.bmm(self._weights().mT, self.images[:, : self.count], out=flat[:, None])
        torch.add(image, image.mT, out=point)  # exactly symmetric
        torch.mul(point, 0.5, out=image)

    def select(self, where: Tensor) -> "Anderson":
        """Return the history of some of the matrices."""
        part = Anderson()
        if self.count:
            part.count, part.memory = self.count, self.memory
            part.moves, part.images, part.gram = self.moves[where], self.images[where], self.gram[where]
        return part

    def _allocate(self, flat: Tensor) -> None:
        most = MEMORY if len(flat) > 1 else MEMORY_ALONE
        self.memory = max(2, min(most, MEMORY_BYTES // (flat.element_size() * flat.shape[1])))
        self.moves = flat.new_zeros(len(flat), self.memory, flat.shape[1])
        self.images, self.gram = torch.empty_like(self.moves), flat.new_zeros(len(flat), self.memory, self.memory)

    def _weights(self) -> Tensor:
        """Return the affine combination (B, M, 1) of the moves with the smallest norm."""
        used = min(self.count, self.memory)
        gram = self.gram[:, :used, :used]
        gram = gram / trace(gram).clamp_(min=torch.finfo(gram.dtype).tiny)
        gram.diagonal(dim1=1, dim2=2).add_(10 * torch.finfo(gram.dtype).eps)  # above its rounding errors
        weights: Tensor = torch.linalg.solve_ex(gram, torch.ones_like(gram[:, :, :1])).result
        return weights / weights.sum(1, keepdim=True)


class _State(NamedTuple):
    """The unfinished problems: their data, their iterates and their position in the batch."""

    cov: Tensor
    penalty: Tensor
    cov_norm: Tensor  # ‖S‖ (B, 1, 1)
    shifted: Tensor  # V + ρZ
    v: Tensor
    rho: Tensor
    theta: Tensor  # previous Θ; empty unless it is reused
    probes: Tensor  # of the Θ-step; empty unless it deflates
    position: Tensor

    @property
    def z(self) -> Tensor:
        return torch.sub(self.shifted, self.v).div_(self.rho)

    def select(self, chosen: list[int]) -> "_State":
        """Return some of the problems, without a copy if they are all of them."""
        if len(chosen) == len(self.position):
            return self
        where = torch.tensor(chosen, device=self.position.device)
        return _State(*(tensor[where] for tensor in self))


class CheckSchedule:
    """The next iteration to check each problem's gap, kept on the host without synchronisation.

    Each problem has its own schedule, so its result does not depend on the rest of the batch.
    """

    def __init__(self, limit: list[float], stop_stalled: bool) -> None:
        self.limit, self.stop_stalled = limit, stop_stalled
        self.check_at = [1] * len(limit)
        self.last = [(math.inf, 0)] * len(limit)  # the last gap and its iteration
        self.halved = [(math.inf, 0)] * len(limit)  # the last halving of the gap

    def record(self, i: int, gap: float, iteration: int) -> None:
        """Schedule the next check by the convergence rate, at best a digit per 1.3 iterations."""
        digits = math.log10(gap / self.limit[i]) if self.limit[i] < gap < math.inf else 0.0
        before, then = self.last[i]
        pace = (iteration - then) / math.log10(before / gap) if 0 < gap < 0.9 * before < math.inf else 0.0
        # An early rate is unreliable: wait no longer than the iterations so far.
        self.check_at[i] = iteration + max(1, min(math.ceil(max(1.3, pace) * digits), max(6, min(iteration, MAX_WAIT))))
        self.last[i] = gap, iteration
        if gap < 0.5 * self.halved[i][0]:
            self.halved[i] = gap, iteration

    def stalled(self, i: int, iteration: int) -> bool:
        return self.stop_stalled and iteration - self.halved[i][1] >= STALLED

    def select(self, chosen: list[int]) -> "CheckSchedule":
        part = CheckSchedule([self.limit[i] for i in chosen], self.stop_stalled)
        for name in ("check_at", "last", "halved"):
            setattr(part, name, [getattr(self, name)[i] for i in chosen])
        return part


def admm(cov: Tensor, penalty: Tensor, bound: Tensor, start: Start, *, max_iter: int, strategy: Strategy) -> Solution:
    """Run ADMM until each gap is at most its ``bound``; finished matrices leave the batch.

    Args:
        cov: Standardized matrices S (B, D, D).
        penalty: Λ (B, D, D) with a zero diagonal.
        bound: Largest accepted gap (B,).
        start: Starting point, overwritten.
        max_iter: Iterations after which unfinished matrices are returned as they are.
        strategy: Algorithms to use.
    """
    state, finished = _begin(cov, penalty, start, strategy), []
    level, guard = common_level(penalty), Guard()
    del start  # release its memory
    anderson, begin = Anderson(), ACCELERATE_WARM if strategy.warm else ACCELERATE
    active, schedule, next_check = list(range(len(cov))), CheckSchedule(bound.tolist(), strategy.stop_stalled), 1
    for iteration in range(1, max_iter + 1):
        if iteration % RESTART == 0:
            anderson = Anderson()
        accelerated = strategy.accelerate and iteration > begin and iteration % RESTART != 0
        state = _iterate(state, strategy, iteration, level, guard, anderson if accelerated else None)
        last = iteration == max_iter
        if iteration < next_check and not last:
            continue
        due = [i for i in active if last or schedule.check_at[i] <= iteration]
        done = _check(state, schedule, due, iteration, last, strategy)
        if done:
            finished.append(_finish(state, done, iteration))
            active = [i for i in active if i not in done]
            if not active:
                break
            # Compaction copies the batch. Cheap steps by products run on until half of it is
            # finished.
            if strategy.theta_step == "eigh" or 2 * len(active) <= len(schedule.limit):
                anderson = anderson.select(torch.tensor(active, device=cov.device))
                state, schedule = state.select(active), schedule.select(active)
                active = list(range(len(active)))
        next_check = min(schedule.check_at[i] for i in active)
    del state
    return _in_order(finished)


def _begin(cov: Tensor, penalty: Tensor, start: Start, strategy: Strategy) -> _State:
    """Return the first state, which takes over the memory of the start."""
    v = start.dual.sub_(cov).clamp_(-penalty, penalty)
    theta = start.precision if strategy.reuse_theta else cov.new_empty(len(cov), 0, 0)
    index, shifted = torch.arange(len(cov), device=cov.device), torch.addcmul(v, start.precision, start.rho)
    deflate = strategy.reuse_theta and cov.shape[-1] >= DEFLATED_SIZE
    probes = first_probes(cov) if deflate else cov.new_empty(len(cov), 0, 0)
    return _State(cov, penalty, frobenius_norm(cov), shifted, v, start.rho, theta, probes, index)


def common_level(penalty: Tensor) -> float | None:
    """Return the off-diagonal penalty if it is one number, which is faster to clip at."""
    level, size = float(penalty.max()), penalty.shape[-1]
    return level if int((penalty == level).sum()) == len(penalty) * size * (size - 1) else None


def _iterate(
    state: _State, strategy: Strategy, iteration: int, level: float | None, guard: Guard, anderson: Anderson | None
) -> _State:
    """Take one over-relaxed step in place, then balance the relative residuals by ρ."""
    shifted, v, rho = state.shifted, state.v, state.rho
    theta, spare = _theta_step(state, strategy, iteration, guard)
    rough = strategy.reuse_theta or strategy.certificate == "estimate"
    balance = anderson is None and (not rough or changes_rho(iteration))
    before = torch.sub(shifted, v, out=spare) if balance else spare.copy_(shifted)
    shifted.lerp_(v, RELAXATION).addcmul_(theta, rho, value=RELAXATION)
    if anderson is not None:
        anderson.extrapolate_(before, shifted)
    if level is None:
        torch.clamp(shifted, state.penalty.neg(), state.penalty, out=v)
    else:
        torch.clamp(shifted, -level, level, out=v).diagonal(dim1=-2, dim2=-1).zero_()
    if balance:
        factor = _rho_factor(state, theta, before, iteration)
        torch.lerp(v, shifted, factor, out=shifted)
        rho = rho * factor
    return state._replace(rho=rho)


def changes_rho(iteration: int) -> bool:
    """Return whether to balance ρ in a rough iteration, so cheap that norms count.

    ρ must be near its final value when the acceleration begins, which needs a constant one.
    """
    return iteration <= ACCELERATE or iteration % 3 == 0


def _rho_factor(state: _State, theta: Tensor, before: Tensor, iteration: int) -> Tensor:
    """Return the factor (B, 1, 1) of ρ, given Θ and the previous ρZ; overwrites the latter."""
    after = torch.sub(state.shifted, state.v)
    # Relative to ‖V‖ the dual residual is too large where λ is small; relative to ‖W‖ it is too
    # small on singular input. The geometric mean needs the fewest iterations over the whole range.
    # ‖S‖ approximates ‖W‖.
    dual = frobenius_norm(before.sub_(after)) / torch.sqrt(frobenius_norm(state.v) * state.cov_norm)
    unit = frobenius_norm(after)
    primal = frobenius_norm(after.addcmul_(theta, state.rho, value=-1)) / unit
    factor = torch.sqrt(primal / dual).nan_to_num_(1.0).clamp_(0.5, 2.0)
    return factor.pow_(SETTLE / iteration) if iteration > SETTLE else factor


def _theta_step(state: _State, strategy: Strategy, iteration: int, guard: Guard) -> tuple[Tensor, Tensor]:
    """Return an exactly symmetric Θ and a buffer that is free to overwrite."""
    b = torch.sub(state.cov, state.shifted).add_(state.v, alpha=2)
    reuse, probes = strategy.reuse_theta, state.probes if state.probes.numel() else None
    if reuse and iteration <= SETTLE and correct_theta_(state.theta, b, state.rho, iteration, guard, probes):
        return state.theta, b
    half = (half_theta_by_eigh if strategy.theta_step == "eigh" else half_theta_by_newton_schulz)(b, state.rho)
    return torch.add(half, half.mT, out=state.theta if reuse else None), half


def _check(
    state: _State, schedule: CheckSchedule, due: list[int], iteration: int, last: bool, strategy: Strategy
) -> dict[int, float]:
    """Return the gaps of the finished ``due`` problems; schedule the next check of the others."""
    z, dual = state.z, state.cov + state.v
    if strategy.reuse_theta and not last and _all_far(z, dual, schedule, due, iteration):
        return {}
    estimates = estimated_gap(z, dual).tolist()
    near = [i for i in due if last or estimates[i] <= schedule.limit[i] or schedule.stalled(i, iteration)]
    gaps = _exact_gaps(state, z, dual, near) if strategy.certificate == "exact" else [estimates[i] for i in near]
    found = dict(zip(near, gaps, strict=True))
    for i in due:
        schedule.record(i, found.get(i, estimates[i]), iteration)
    return {i: g for i, g in found.items() if last or g <= schedule.limit[i] or schedule.stalled(i, iteration)}


def _all_far(z: Tensor, dual: Tensor, schedule: CheckSchedule, due: list[int], iteration: int) -> bool:
    """Return whether rough gaps show that no problem is finished; if so, schedule next checks."""
    rough = rough_gap(z, dual, random_probes(z.shape[-1])).tolist()
    if not all(rough[i] > 2 * schedule.limit[i] and not schedule.stalled(i, iteration) for i in due):
        return False
    for i in due:
        schedule.record(i, rough[i], iteration)
    return True


def _exact_gaps(state: _State, z: Tensor, dual: Tensor, which: list[int]) -> list[float]:
    gaps: list[float] = []
    for where in chunks(torch.tensor(which, dtype=torch.int64, device=dual.device)) if which else ():
        gaps += duality_gap(*(rows(m, where) for m in (state.cov, state.penalty, z, dual))).tolist()
    return gaps


def _finish(state: _State, done: dict[int, float], iteration: int) -> tuple[Tensor, Solution]:
    out = state.select(list(done))
    gap = torch.tensor(list(done.values()), dtype=torch.float64, device=out.z.device)
    return out.position, Solution(out.z, out.cov + out.v, gap, torch.full_like(out.position, iteration), out.rho)


def _in_order(finished: list[tuple[Tensor, Solution]]) -> Solution:
    """Restore the order of the batch."""
    if len(finished) == 1:
        return finished[0][1]
    order = torch.argsort(torch.cat([index for index, _ in finished]))
    parts = zip(*(solution for _, solution in finished), strict=True)
    return Solution(*(torch.cat(tensors)[order] for tensors in parts))
