"""ADMM for one small problem on a CPU, in NumPy.

The method is that of :mod:`.admm` with corrected Θ-steps. On 50 × 50 entries most operations take
NumPy half a microsecond and torch two or more, and an iteration has about forty of them. Cholesky
factors and eigenvectors come from torch, which computes them faster than NumPy.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .admm import (
    ACCELERATE,
    ACCELERATE_WARM,
    MAX_GROWTH,
    MEMORY_ALONE,
    RELAXATION,
    RESTART,
    CheckSchedule,
    Solution,
    changes_rho,
)
from .small_theta_step import Matrix, SmallThetaStep, norm, plus_transpose
from .start import MAX_RIDGE, RIDGE

SMALL_SIZE = 64  # largest size of products that the BLAS of NumPy computes on one thread
SINGLE_MARGIN = 300.0  # the bound as a multiple of the rounding error of a float32 gap
CLOSE_INVERSE = 0.5  # gap as a multiple of λD up to which W⁻¹ is the better start
ROUNDING = 1e-13  # gap per variable of an exact solution
TINY = 1e-30  # squared length of a move, which keeps the system of the acceleration regular


def small_admm(
    cov: Tensor, penalty: Tensor, bound: float, init: Tensor | None, max_iter: int
) -> tuple[Solution, Tensor]:
    """Run ADMM on one float64 problem (D, D) until its gap is at most ``bound``.

    It runs in float32 where rounding hardly changes such a gap, and in float64 if that does not
    suffice. ``init`` has the precision and the dual to start from (2, D, D). Return the solution,
    with a batch dimension, and the inverse of the precision.
    """
    s, upper = cov.numpy(), penalty.numpy()
    theta, v = _cold_start(s, upper) if init is None else _warm_start(s, *init.numpy())
    found, n_iter, rho = _solve(s, upper, theta, v, bound, max_iter, warm=init is not None)
    inverse = torch.from_numpy(found.dual if math.isinf(found.gap) else _inverse(found.factor))[None]
    precision, dual = torch.from_numpy(found.precision)[None], torch.from_numpy(found.dual)[None]
    gap = torch.tensor([max(found.gap, 0.0)], dtype=torch.float64)
    return Solution(precision, dual, gap, torch.tensor([n_iter]), cov.new_full((1, 1, 1), rho)), inverse


class Certified(NamedTuple):
    """Z and W in float64, their exact duality gap, and the Cholesky factor of Z."""

    precision: Matrix
    dual: Matrix
    gap: float
    factor: Tensor

    @classmethod
    def of(cls, s: Matrix, upper: Matrix, precision: Matrix, v: Matrix) -> "Certified":
        """Evaluate the gap of Z and W = S + V, ∞ if one of them is not positive definite."""
        dual, (factor, logdet) = s + v, _factor(precision)
        linear = float(np.vdot(s, precision) + np.vdot(upper, np.abs(precision)))
        return cls(precision, dual, linear - len(s) - logdet - _factor(dual)[1], factor)


def _solve(
    s: Matrix, upper: Matrix, theta: Matrix, v: Matrix, bound: float, max_iter: int, warm: bool
) -> tuple[Certified, int, float]:
    """Return the solution, the iterations and ρ, from Θ and V."""
    if not warm and _is_inverse_optimal(s, upper, theta, v):
        found = Certified.of(s, upper, theta, v)
        if found.gap <= bound:
            return found, 0, 1.0
    single = SINGLE_MARGIN * (np.finfo(np.float32).eps * norm(s) * norm(theta)) ** 2 < bound
    dtype, begin = np.float32 if single else np.float64, ACCELERATE_WARM if warm else ACCELERATE
    state = SmallAdmm(s, upper, dtype, theta, v, begin=begin)
    found = state.run(bound, max_iter)
    if single and found.gap > bound and state.iteration < max_iter:
        begin = state.iteration + ACCELERATE_WARM
        state = SmallAdmm(s, upper, np.float64, found.precision, found.dual - s, state.rho, state.iteration, begin)
        found = state.run(bound, max_iter)
    return found, state.iteration, state.rho


def _is_inverse_optimal(s: Matrix, upper: Matrix, theta: Matrix, v: Matrix) -> bool:
    """Return whether Θ, if it is (S + V)⁻¹, is the solution, as on rank one and without links."""
    linear = np.vdot(s, theta) + np.vdot(upper, np.abs(theta))
    if abs(linear - len(s)) > ROUNDING * len(s):
        return False
    return not bool(np.any((theta != 0) & (np.abs(v) < upper)))


class SmallAdmm:
    """Iterates Θ, ρZ and V of one problem, in float32 or float64."""

    def __init__(
        self,
        s: Matrix,
        upper: Matrix,
        dtype: Any,
        theta: Matrix,
        v: Matrix,
        rho: float | None = None,
        iteration: int = 0,
        begin: int = ACCELERATE,
    ) -> None:
        """Start from Θ and V, accelerate after iteration ``begin``."""
        self.exact = s, upper
        self.s, self.upper = s.astype(dtype), upper.astype(dtype)
        self.lower, self.norm_s = -self.upper, norm(s)
        self.v = self._clipped(v.astype(dtype))
        self.rho = rho or math.sqrt(norm(self.v) * self.norm_s) / norm(theta) or 1.0
        theta = theta.astype(dtype)
        self.z = self.rho * theta  # ρZ
        self.theta_step = SmallThetaStep(theta, max(begin, ACCELERATE))
        self.iteration, self.begin = iteration, begin
        self.anderson: SmallAnderson | None = None

    def run(self, bound: float, max_iter: int) -> Certified:
        """Iterate until the gap is at most ``bound``, or in float32 no longer decreases."""
        schedule, last = CheckSchedule([bound], stop_stalled=self.s.dtype == np.float32), False
        while not last:
            self.step()
            last = self.iteration == max_iter
            if self.iteration < schedule.check_at[0] and not last:
                continue
            gap, last = self.estimated_gap(), last or schedule.stalled(0, self.iteration)
            if gap <= bound or last:
                found = self.certified()
                gap, last = found.gap, last or found.gap <= bound
            schedule.record(0, gap, self.iteration)
        return found

    def step(self) -> None:
        """Take one over-relaxed step, then balance the relative residuals by ρ."""
        self.iteration += 1
        rho, v, z, restart = self.rho, self.v, self.z, self.iteration % RESTART == 0
        b = self.s + v
        b -= z
        theta = self.theta_step(b, rho, self.iteration)
        moved = (RELAXATION * rho) * theta
        moved += v
        moved -= (RELAXATION - 1) * z
        if restart:
            self.anderson = None
        accelerated = self.iteration > self.begin and not restart
        if accelerated:
            self.anderson = self.anderson or SmallAnderson(len(b), b.dtype)
            moved = self.anderson.extrapolated(v + z, moved)
        self.v = self._clipped(moved)
        self.z = np.subtract(moved, self.v, out=moved)
        if not accelerated and changes_rho(self.iteration):
            factor = _rho_factor(z, self.z, rho * theta, math.sqrt(norm(self.v) * self.norm_s))
            self.z *= factor
            self.rho = rho * factor

    def estimated_gap(self) -> float:
        """Return tr(E²)/2 for E = ZW − I."""
        error = (self.z @ (self.s + self.v)) / self.rho
        error.reshape(-1)[:: len(error) + 1] -= 1.0
        return 0.5 * float(np.vdot(error, error.T))

    def certified(self) -> Certified:
        """Return the iterate with its exact gap."""
        s, upper = self.exact
        precision, v = self.z.astype(np.float64) / self.rho, self.v.astype(np.float64)
        if self.v.dtype == np.float32:
            # Where Z is not zero V is at its bound, which float32 may not represent.
            np.copysign(upper, precision, out=v, where=precision != 0)
            v = np.minimum(np.maximum(v, -upper), upper)
        return Certified.of(s, upper, precision, v)

    def _clipped(self, matrix: Matrix) -> Matrix:
        clipped: Matrix = np.minimum(np.maximum(matrix, self.lower), self.upper)
        return clipped


def _cold_start(s: Matrix, upper: Matrix) -> tuple[Matrix, Matrix]:
    """Return Θ and V as :func:`.start.cold_start` with Cholesky factors."""
    size = len(s)
    sparsity = min(1.0, float(upper.sum()) / max(1, size * (size - 1)))
    v = -np.minimum(np.maximum(s, -upper), upper)
    inverse, linear, inverse_objective = _inverse_and_objective(s, upper, s + v)
    if linear - size <= CLOSE_INVERSE * sparsity * size:  # the gap of W and W⁻¹
        return inverse, v
    base = s.copy()
    base.reshape(-1)[:: size + 1] += min(RIDGE * math.sqrt(size) * sparsity, MAX_RIDGE * math.sqrt(sparsity))
    precision, _, objective = _inverse_and_objective(s, upper, base)
    return (inverse, v) if inverse_objective < objective else (precision, np.sign(precision) * upper)


def _inverse_and_objective(s: Matrix, upper: Matrix, base: Matrix) -> tuple[Matrix, float, float]:
    """Return Z = base⁻¹, ⟨S, Z⟩ + Σ Λ_ij|Z_ij| and P(Z); I, ∞ and ∞ if the base is indefinite."""
    factor, logdet = _factor(base)
    if logdet == -math.inf:
        return np.eye(len(s)), math.inf, math.inf
    inverse = _inverse(factor)
    linear = float(np.vdot(s, inverse) + np.vdot(upper, np.abs(inverse)))
    return inverse, linear, linear + logdet


def _warm_start(s: Matrix, precision: Matrix, dual: Matrix) -> tuple[Matrix, Matrix]:
    """Return a precision, or I where it is indefinite, and V, perhaps beyond its bounds."""
    return np.eye(len(s)) if _factor(precision)[1] == -math.inf else precision, dual - s


def _factor(matrix: Matrix) -> tuple[Tensor, float]:
    """Return the Cholesky factor and logdet, which is −∞ if a matrix is not positive definite."""
    factor, info = torch.linalg.cholesky_ex(torch.from_numpy(matrix))
    if int(info) != 0:
        return factor, -math.inf
    return factor, 2 * float(np.log(factor.diagonal().numpy()).sum())


def _inverse(factor: Tensor) -> Matrix:
    return 0.5 * plus_transpose(torch.cholesky_inverse(factor).numpy())


class SmallAnderson:
    """:class:`.admm.Anderson` for one problem."""

    def __init__(self, size: int, dtype: Any = np.float64) -> None:
        self.count = 0
        self.moves, self.images = np.zeros((2, MEMORY_ALONE, size * size), dtype)
        self.gram = np.zeros((MEMORY_ALONE, MEMORY_ALONE))  # inner products of the moves
        self.ones, self.rounding = np.ones(MEMORY_ALONE), 10 * float(np.finfo(dtype).eps)

    def extrapolated(self, point: Matrix, image: Matrix) -> Matrix:
        """Return the next point, given the image of a point."""
        slot, last = self.count % MEMORY_ALONE, (self.count - 1) % MEMORY_ALONE
        np.subtract(image, point, out=self.moves[slot].reshape(image.shape))
        products = self.moves.dot(self.moves[slot])
        if self.count and products[slot] > MAX_GROWTH**2 * self.gram[last, last]:
            self.count = 0
            previous: Matrix = self.images[last].reshape(image.shape).copy()
            return previous
        self.images[slot] = image.ravel()
        products[slot] += self.rounding * products[slot] + TINY  # above its rounding errors
        self.gram[slot], self.gram[:, slot] = products, products
        self.count += 1
        used = min(self.count, MEMORY_ALONE)
        weights = np.linalg.solve(self.gram[:used, :used], self.ones[:used])
        weights *= 0.5 / weights.sum()
        half = weights.astype(image.dtype).dot(self.images[:used])
        return plus_transpose(half.reshape(image.shape))


def _rho_factor(before: Matrix, z: Matrix, scaled_theta: Matrix, unit: float) -> float:
    """Return the factor of ρ that balances the relative residuals, given ρZ before and after."""
    dual, primal = norm(before - z) * norm(z), norm(z - scaled_theta) * unit
    return min(2.0, max(0.5, math.sqrt(primal / dual))) if dual > 0 else 1.0
