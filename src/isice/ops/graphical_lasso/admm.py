"""The graphical lasso by ADMM, a batch at a time, each matrix with its own penalty parameter and certificate.

The problem here is standardized: min −logdet Θ + ⟨S, Θ⟩ + Σ Λ_ij|Θ_ij| with a unit diagonal in S and none in Λ.
Its dual is max logdet W + D over |W − S| ≤ Λ. The dual variable V of ADMM gives W = S + V, which meets that
constraint by construction, so P(Z) − logdet W − D bounds the error of Z however inexact the steps were.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .certificate import duality_gap, estimated_gap, in_parts, rough_gap
from .start import Start, norm
from .theta_step import half_prox_by_eigh, half_prox_by_newton_schulz, newton_step_, probes

RELAXATION = 1.6
SETTLE = 100
STALLED = 20  # iterations in which the gap did not halve: rounding stands in the way


class Solution(NamedTuple):
    """Primal Z (B, D, D), dual W (B, D, D), duality gap (B,) in float64, iterations (B,), ADMM's ρ (B, 1, 1)."""

    precision: Tensor
    dual: Tensor
    gap: Tensor
    n_iter: Tensor
    rho: Tensor

    def where(self, chosen: Tensor, dtype: torch.dtype) -> Start:
        """Some of the matrices, to go on from."""
        return Start(*(tensor[chosen].to(dtype) for tensor in (self.precision, self.dual, self.rho)))


class _State(NamedTuple):
    """The unfinished problems: their data, their iterates and their place in the batch."""

    cov: Tensor
    penalty: Tensor
    size: Tensor  # ‖S‖ (B, 1, 1)
    moved: Tensor  # V + ρZ
    v: Tensor
    rho: Tensor
    theta: Tensor  # the last Θ; empty where each is computed from scratch
    place: Tensor

    @property
    def z(self) -> Tensor:
        return torch.sub(self.moved, self.v).div_(self.rho)

    def select(self, chosen: list[int]) -> "_State":
        """Some of the problems; all of them are not copied."""
        if len(chosen) == len(self.place):
            return self
        where = torch.tensor(chosen, device=self.place.device)
        return _State(*(tensor[where] for tensor in self))


class _Calendar:
    """Which problem is checked when, in plain numbers: looking at them costs no wait for the device.

    Each problem keeps its own, so its result does not depend on its companions in the batch.
    """

    def __init__(self, limit: list[float], give_up: bool) -> None:
        self.limit, self.give_up = limit, give_up
        self.check_at = [1] * len(limit)
        self.seen = [(math.inf, 0)] * len(limit)  # the last gap and when
        self.best = [(math.inf, 0)] * len(limit)  # the last gap that was half of the one before it here, and when

    def note(self, i: int, gap: float, iteration: int) -> None:
        """Plans the next check for when the gap, shrinking at its pace, or a digit in 1.3 iterations, could be met."""
        digits = math.log10(gap / self.limit[i]) if self.limit[i] < gap < math.inf else 0.0
        before, then = self.seen[i]
        pace = (iteration - then) / math.log10(before / gap) if 0 < gap < 0.9 * before < math.inf else 0.0
        # A pace seen early may mean little: no wait for longer than it took to get here.
        self.check_at[i] = iteration + max(1, min(math.ceil(max(1.3, pace) * digits), max(6, iteration)))
        self.seen[i] = gap, iteration
        if gap < 0.5 * self.best[i][0]:
            self.best[i] = gap, iteration

    def stalled(self, i: int, iteration: int) -> bool:
        return self.give_up and iteration - self.best[i][1] >= STALLED

    def select(self, chosen: list[int]) -> "_Calendar":
        part = _Calendar([self.limit[i] for i in chosen], self.give_up)
        for name in ("check_at", "seen", "best"):
            setattr(part, name, [getattr(self, name)[i] for i in chosen])
        return part


def admm(
    cov: Tensor,
    penalty: Tensor,
    bound: Tensor,
    start: Start,
    *,
    max_iter: int,
    newton_schulz: bool = False,
    correct: bool = False,
    give_up: bool = False,
    certify: bool = True,
) -> Solution:
    """Runs ADMM until the gap of each matrix is at most its ``bound``; finished matrices leave the batch.

    Args:
        cov: Standardized matrices (B, D, D).
        penalty: Λ (B, D, D) with a zero diagonal.
        bound: Largest accepted gap (B,).
        start: Where to begin.
        max_iter: Iterations after which the rest is returned as it stands.
        newton_schulz: Θ-step by products instead of an eigendecomposition.
        correct: Whether a Θ-step corrects the one before as long as that is enough.
        give_up: Whether matrices whose gap no longer shrinks leave as they stand, too.
        certify: Whether the gap is proven by factorizations; else the estimate to second order decides.
    """
    state, finished = _begin(cov, penalty, start, correct), []
    level = _common_level(penalty) if correct else None
    del start  # the batch changes place with every step, and nobody else holds this one
    active, calendar, next_check = list(range(len(cov))), _Calendar(bound.tolist(), give_up), 1
    for iteration in range(1, max_iter + 1):
        state = _iterate(state, newton_schulz, iteration, level)
        last = iteration == max_iter
        if iteration < next_check and not last:
            continue
        due = [i for i in active if last or calendar.check_at[i] <= iteration]
        done = _check(state, calendar, due, iteration, last, certify)
        if done:
            finished.append(_finish(state, done, iteration))
            active = [i for i in active if i not in done]
            if not active:
                break
            # Leaving costs copies: by products the finished wait until they are half of the batch.
            if not newton_schulz or 2 * len(active) <= len(calendar.limit):
                state, calendar = state.select(active), calendar.select(active)
                active = list(range(len(active)))
        next_check = min(calendar.check_at[i] for i in active)
    del state
    return _in_order(finished)


def _begin(cov: Tensor, penalty: Tensor, start: Start, correct: bool) -> _State:
    v = torch.sub(start.dual, cov).clamp_(-penalty, penalty)
    theta = start.precision.clone() if correct else cov.new_empty(len(cov), 0, 0)
    place = torch.arange(len(cov), device=cov.device)
    return _State(cov, penalty, norm(cov), torch.addcmul(v, start.precision, start.rho), v, start.rho, theta, place)


def _common_level(penalty: Tensor) -> float | None:
    """The penalty of all entries but the diagonals, if it is one: a number is quicker to clip at than a matrix."""
    level, size = float(penalty.max()), penalty.shape[-1]
    return level if int((penalty == level).sum()) == len(penalty) * size * (size - 1) else None


def _iterate(state: _State, newton_schulz: bool, iteration: int, level: float | None = None) -> _State:
    """One over-relaxed step, in place, then the ρ that balances the relative residuals of each problem."""
    penalty, moved, v, rho = state.penalty, state.moved, state.v, state.rho
    theta, spare = _theta_step(state, newton_schulz, iteration)
    # Where a step is a few products, the norms are a part of the time, and ρ soon changes little.
    balance = state.theta.numel() == 0 or iteration <= 4 or iteration > SETTLE or iteration % 3 == 0
    before = torch.sub(moved, v, out=spare) if balance else spare
    moved.lerp_(v, RELAXATION).addcmul_(theta, rho, value=RELAXATION)
    if level is None:
        torch.clamp(moved, penalty.neg(), penalty, out=v)
    else:
        torch.clamp(moved, -level, level, out=v).diagonal(dim1=-2, dim2=-1).zero_()
    if balance:
        factor = _balance(state, theta, before, iteration)
        torch.lerp(v, moved, factor, out=moved)
        rho = rho * factor
    return state._replace(rho=rho)


def _balance(state: _State, theta: Tensor, before: Tensor, iteration: int) -> Tensor:
    """The factor (B, 1, 1) by which ρ changes, from Θ and ρZ as it was; overwrites that."""
    after = torch.sub(state.moved, state.v)
    # The natural unit of the dual change, ‖V‖, is tiny where λ is small; ‖W‖ is too large on singular input. Their
    # geometric mean needs the fewest iterations over the whole range. ‖S‖ stands for ‖W‖.
    dual = norm(before.sub_(after)) / torch.sqrt(norm(state.v) * state.size)
    unit = norm(after)
    primal = norm(after.addcmul_(theta, state.rho, value=-1)) / unit
    factor = torch.sqrt(primal / dual).nan_to_num_(1.0).clamp_(0.5, 2.0)
    if iteration > SETTLE:  # a parameter that never settles could keep ADMM from converging
        factor = factor.pow_(SETTLE / iteration)
    return factor


def _theta_step(state: _State, newton_schulz: bool, iteration: int) -> tuple[Tensor, Tensor]:
    """Θ, exactly symmetric, and memory that is free: the last Θ corrected, or, where that is not enough, the root."""
    b = torch.sub(state.cov, state.moved).add_(state.v, alpha=2)
    correct = state.theta.numel() > 0
    if correct and iteration <= SETTLE and newton_step_(state.theta, b, state.rho, iteration):
        return state.theta, b
    half = (half_prox_by_newton_schulz if newton_schulz else half_prox_by_eigh)(b, state.rho)
    return torch.add(half, half.mT, out=state.theta if correct else None), half


def _check(
    state: _State, calendar: _Calendar, due: list[int], iteration: int, last: bool, certify: bool
) -> dict[int, float]:
    """The gaps of those of the problems ``due`` that are finished; the others are checked again later."""
    z, dual = state.z, state.cov + state.v
    if state.theta.numel() and not last and _far(state, z, dual, calendar, due, iteration):
        return {}
    estimates = estimated_gap(z, dual).tolist()
    near = [i for i in due if last or estimates[i] <= calendar.limit[i] or calendar.stalled(i, iteration)]
    gaps = _certified(state, z, dual, near) if certify else [estimates[i] for i in near]
    certified = dict(zip(near, gaps, strict=True))
    for i in due:
        calendar.note(i, certified.get(i, estimates[i]), iteration)
    return {i: g for i, g in certified.items() if last or g <= calendar.limit[i] or calendar.stalled(i, iteration)}


def _far(state: _State, z: Tensor, dual: Tensor, calendar: _Calendar, due: list[int], iteration: int) -> bool:
    """Whether all problems are so far from done that a rough gap says so; then that plans their next checks."""
    rough = rough_gap(z, dual, probes(z.shape[-1])).tolist()
    if not all(rough[i] > 2 * calendar.limit[i] and not calendar.stalled(i, iteration) for i in due):
        return False
    for i in due:
        calendar.note(i, rough[i], iteration)
    return True


def _certified(state: _State, z: Tensor, dual: Tensor, which: list[int]) -> list[float]:
    gaps: list[float] = []
    for where in in_parts(torch.tensor(which, dtype=torch.int64, device=dual.device)) if which else ():
        gaps += duality_gap(state.cov[where], state.penalty[where], z[where], dual[where]).tolist()
    return gaps


def _finish(state: _State, done: dict[int, float], iteration: int) -> tuple[Tensor, Solution]:
    out = state.select(list(done))
    gap = torch.tensor(list(done.values()), dtype=torch.float64, device=out.z.device)
    return out.place, Solution(out.z, out.cov + out.v, gap, torch.full_like(out.place, iteration), out.rho)


def _in_order(finished: list[tuple[Tensor, Solution]]) -> Solution:
    """Puts the solutions back into the order of the batch."""
    if len(finished) == 1:
        return finished[0][1]
    order = torch.argsort(torch.cat([place for place, _ in finished]))
    parts = zip(*(solution for _, solution in finished), strict=True)
    return Solution(*(torch.cat(tensors)[order] for tensors in parts))
