"""ADMM for one small problem on a CPU, in NumPy.

The method is that of :mod:`.admm` with corrected Θ-steps. On 50 × 50 entries most operations take
NumPy one microsecond and torch three to five, and an iteration has about forty of them. Cholesky
factors come from torch, which computes them three times as fast as NumPy.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
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
from .lyapunov import correction_polynomial
from .start import MAX_RIDGE, RIDGE
from .theta_step import Guard, half_theta_by_eigh

Matrix = NDArray[np.float64]

SMALL_SIZE = 64  # largest size of products that the BLAS of NumPy computes on one thread


def small_admm(
    cov: Tensor, penalty: Tensor, bound: float, init: Tensor | None, max_iter: int
) -> tuple[Solution, Tensor]:
    """Run ADMM on one float64 problem (1, D, D) until its gap is at most ``bound``.

    ``init`` has the precision and the dual to start from (1, 2, D, D). Return the solution and the
    inverse of the precision.
    """
    s, upper = cov[0].numpy(), penalty[0].numpy()
    lower, size, norm_s = -upper, len(s), _norm(s)
    theta, v = _cold_start(s, upper) if init is None else _warm_start(s, *init[0].numpy())
    v = np.minimum(np.maximum(v, lower), upper)
    rho = math.sqrt(_norm(v) * norm_s) / _norm(theta) or 1.0
    z = rho * theta  # ρZ
    begin = ACCELERATE if init is None else ACCELERATE_WARM
    schedule, guard, anderson = CheckSchedule([bound], stop_stalled=False), Guard(), SmallAnderson(size)
    for iteration in range(1, max_iter + 1):
        b = s + v
        b -= z
        theta = _theta_step(theta, b, rho, iteration, guard)
        moved = (RELAXATION * rho) * theta
        moved += v
        moved -= (RELAXATION - 1) * z
        if iteration % RESTART == 0:
            anderson = SmallAnderson(size)
        accelerated = iteration > begin and iteration % RESTART != 0
        if accelerated:
            moved = anderson.extrapolated(v + z, moved)
        v = np.minimum(np.maximum(moved, lower), upper)
        before, z = z, np.subtract(moved, v, out=moved)
        if not accelerated and changes_rho(iteration):
            factor = _rho_factor(before, z, rho * theta, math.sqrt(_norm(v) * norm_s))
            z *= factor
            rho *= factor
        if iteration < schedule.check_at[0] and iteration < max_iter:
            continue
        precision, dual = z / rho, s + v
        product = precision @ dual
        product.flat[:: size + 1] -= 1.0
        gap = 0.5 * float(np.vdot(product, product.T))
        if gap <= bound or iteration == max_iter:
            linear = np.vdot(s, precision) + np.vdot(upper, np.abs(precision))
            triangle, logdet = _factor(precision)
            gap = linear - size - logdet - _factor(dual)[1]
            if gap <= bound or iteration == max_iter:
                break
        schedule.record(0, gap, iteration)
    inverse = dual if math.isinf(gap) else _inverse(triangle)
    precision, dual, inverse = (torch.from_numpy(matrix)[None] for matrix in (precision, dual, inverse))
    exact = torch.tensor([max(gap, 0.0)], dtype=torch.float64)
    return Solution(precision, dual, exact, torch.tensor([iteration]), cov.new_full((1, 1, 1), rho)), inverse


def _cold_start(s: Matrix, upper: Matrix) -> tuple[Matrix, Matrix]:
    """Return Θ and V as :func:`.start.cold_start` with Cholesky factors."""
    size = len(s)
    sparsity = min(1.0, float(upper.sum()) / max(1, size * (size - 1)))
    v = -np.minimum(np.maximum(s, -upper), upper)
    base = s.copy()
    base.flat[:: size + 1] += min(RIDGE * math.sqrt(size) * sparsity, MAX_RIDGE * math.sqrt(sparsity))
    inverse, inverse_objective = _inverse_and_objective(s, upper, s + v)
    precision, objective = _inverse_and_objective(s, upper, base)
    return (inverse, v) if inverse_objective < objective else (precision, np.sign(precision) * upper)


def _inverse_and_objective(s: Matrix, upper: Matrix, base: Matrix) -> tuple[Matrix, float]:
    """Return Z = base⁻¹ and its objective P(Z); I and ∞ where the base is not positive definite."""
    factor, logdet = _factor(base)
    if logdet == -math.inf:
        return np.eye(len(s)), math.inf
    inverse = _inverse(factor)
    return inverse, float(np.vdot(s, inverse) + np.vdot(upper, np.abs(inverse))) + logdet


def _warm_start(s: Matrix, precision: Matrix, dual: Matrix) -> tuple[Matrix, Matrix]:
    """Return a precision, or I where it is indefinite, and V, perhaps beyond its bounds."""
    return np.eye(len(s)) if _factor(precision)[1] == -math.inf else precision, dual - s


def _factor(matrix: Matrix) -> tuple[Tensor, float]:
    """Return the Cholesky factor and logdet, which is −∞ if a matrix is not positive definite."""
    factor, info = torch.linalg.cholesky_ex(torch.from_numpy(matrix))
    if int(info) != 0:
        return factor, -math.inf
    return factor, 2 * float(np.log(factor.diagonal().numpy()).sum())


class SmallAnderson:
    """:class:`.admm.Anderson` for one problem."""

    def __init__(self, size: int) -> None:
        self.count = 0
        self.moves, self.images = np.zeros((2, MEMORY_ALONE, size * size))
        self.gram = np.zeros((MEMORY_ALONE, MEMORY_ALONE))  # inner products of the moves

    def extrapolated(self, point: Matrix, image: Matrix) -> Matrix:
        """Return the next point, given the image of a point."""
        slot, last = self.count % MEMORY_ALONE, (self.count - 1) % MEMORY_ALONE
        np.subtract(image, point, out=self.moves[slot].reshape(image.shape))
        products = self.moves @ self.moves[slot]
        if self.count and products[slot] > MAX_GROWTH**2 * self.gram[last, last]:
            self.count = 0
            previous: Matrix = self.images[last].reshape(image.shape).copy()
            return previous
        self.images[slot] = image.ravel()
        self.gram[slot], self.gram[:, slot] = products, products
        self.count += 1
        used = min(self.count, MEMORY_ALONE)
        gram, identity = self.gram[:used, :used], np.eye(used)
        gram = gram / max(float(np.vdot(gram, identity)), np.finfo(np.float64).tiny)
        gram += 10 * np.finfo(np.float64).eps * identity  # above its rounding errors
        weights = np.linalg.solve(gram, np.ones(used))
        combined: Matrix = (weights / weights.sum()) @ self.images[:used]
        return 0.5 * _plus_transpose(combined.reshape(image.shape))


def _rho_factor(before: Matrix, z: Matrix, scaled_theta: Matrix, unit: float) -> float:
    """Return the factor of ρ that balances the relative residuals, given ρZ before and after."""
    dual, primal = _norm(before - z) * _norm(z), _norm(z - scaled_theta) * unit
    return min(2.0, max(0.5, math.sqrt(primal / dual))) if dual > 0 else 1.0


def _theta_step(theta: Matrix, b: Matrix, rho: float, iteration: int, guard: Guard) -> Matrix:
    """Correct Θ by a Newton step as :func:`.theta_step.correct_theta_`, or compute it exactly."""
    size, scaled = len(theta), rho * theta
    x = b + scaled
    excess = _plus_transpose(theta @ x)
    excess.flat[:: size + 1] -= 2.0
    x += scaled
    smallest = 2 * math.sqrt(rho)
    coefficients = correction_polynomial(math.sqrt(_norm(x @ x)) / smallest, iteration, size)
    if not (coefficients and guard.accepts(_norm(excess) / (2 * math.sqrt(size)), iteration)):
        half = half_theta_by_eigh(torch.from_numpy(b), torch.tensor([[rho]], dtype=torch.float64)).numpy()
        return _plus_transpose(half)
    scale = 1.0
    for k, coefficient in enumerate(coefficients):
        if k:
            excess = _plus_transpose(x @ excess)
        scale *= 0.5 / smallest
        theta = theta - (coefficient * scale) * excess
    return theta


def _inverse(factor: Tensor) -> Matrix:
    return 0.5 * _plus_transpose(torch.cholesky_inverse(factor).numpy())


def _plus_transpose(matrix: Matrix) -> Matrix:
    return matrix + matrix.T


def _norm(matrix: Matrix) -> float:
    return math.sqrt(np.vdot(matrix, matrix))
