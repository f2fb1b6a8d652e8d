"""ADMM for one small problem on a CPU, in NumPy.

The method is that of :mod:`.admm` with corrected Θ-steps. On 50 × 50 entries most operations take
NumPy one microsecond and torch three to five, and an iteration has about forty of them.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .admm import RELAXATION, RESTART, Anderson, CheckSchedule, Solution, changes_rho
from .certificate import duality_gap
from .start import Start
from .theta_step import Guard, correction_polynomial, half_theta_by_eigh

Matrix = NDArray[np.float64]

ACCELERATE = 30  # later than in larger problems: the acceleration, in torch, costs as much as an iteration
SMALL_SIZE = 64  # largest size of products that the BLAS of NumPy computes on one thread


def small_admm(cov: Tensor, penalty: Tensor, bound: float, start: Start, max_iter: int) -> Solution:
    """Run ADMM on one float64 problem (1, D, D) until its gap is at most ``bound``."""
    s, upper = cov[0].numpy(), penalty[0].numpy()
    lower, size, norm_s = -upper, len(s), _norm(s)
    theta, rho = start.precision[0].numpy().copy(), float(start.rho)
    v = np.clip(start.dual[0].numpy() - s, lower, upper)
    z = rho * theta  # ρZ
    schedule, guard, anderson = CheckSchedule([bound], stop_stalled=False), Guard(), Anderson()
    for iteration in range(1, max_iter + 1):
        b = s + v
        b -= z
        theta = _theta_step(theta, b, rho, iteration, guard)
        moved = (RELAXATION * rho) * theta
        moved += v
        moved -= (RELAXATION - 1) * z
        if iteration % RESTART == 0:
            anderson = Anderson()
        accelerated = iteration > ACCELERATE and iteration % RESTART != 0
        if accelerated:
            anderson.extrapolate_(torch.from_numpy(v + z)[None], torch.from_numpy(moved)[None])
        v = np.minimum(np.maximum(moved, lower), upper)
        before, z = z, np.subtract(moved, v, out=moved)
        if not accelerated and changes_rho(iteration):
            factor = _rho_factor(before, z, rho * theta, math.sqrt(_norm(v) * norm_s))
            z *= factor
            rho *= factor
        if iteration < schedule.check_at[0] and iteration < max_iter:
            continue
        product = (z / rho) @ (s + v)
        product.flat[:: size + 1] -= 1.0
        gap = 0.5 * float(np.vdot(product, product.T))
        if gap <= bound or iteration == max_iter:
            precision, dual = (torch.from_numpy(matrix)[None] for matrix in (z / rho, s + v))
            exact = duality_gap(cov, penalty, precision, dual)
            gap = float(exact)
            if gap <= bound or iteration == max_iter:
                break
        schedule.record(0, gap, iteration)
    return Solution(precision, dual, exact, torch.tensor([iteration]), cov.new_full((1, 1, 1), rho))


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


def _plus_transpose(matrix: Matrix) -> Matrix:
    return matrix + matrix.T


def _norm(matrix: Matrix) -> float:
    return math.sqrt(np.vdot(matrix, matrix))
