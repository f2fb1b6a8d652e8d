"""Θ-step of the graphical lasso's ADMM: the positive definite root of Θ⁻¹ − ρΘ = B.

The root is computed from scratch, by an eigendecomposition or by matrix products, or by correcting
the previous Θ. The methods from scratch return Θ/2, symmetric up to rounding; adding its transpose
gives an exactly symmetric Θ.
"""

import functools
import math
from typing import cast

import numpy as np
import torch
from numpy.polynomial import Polynomial
from torch import Tensor

from .._linalg import plus_transpose
from .lyapunov import FIRST_ITERATIONS, Lyapunov

MAX_RESIDUAL = 1.0  # largest ‖I − sym(ΘK)‖_F/√D at which a Newton step is trusted; from 2 on ADMM can diverge
MAX_DEFLATED_RESIDUAL = 0.3  # the same for matrices with outliers, whose ρ depends on accurate steps
MAX_GROWTH = 2.0  # of the residual since the last exact step, above which an exact step is taken
MAX_PAUSE = 8  # iterations without an attempt after several failed ones
EIGH_SIZE = 200  # size above which eigh is faster on a CPU than the root by products


def half_theta_by_eigh(b: Tensor, rho: Tensor) -> Tensor:
    """Compute Θ/2 = (√(w² + 4ρ) − w)/(4ρ) on the eigenvalues w of B, without cancellation.

    Args:
        b: Symmetric matrices B (B, D, D).
        rho: ADMM parameters ρ (B, 1, 1).
    """
    values, vectors = torch.linalg.eigh(b)
    four_rho = 4 * rho.squeeze(-1)
    larger = torch.addcmul(four_rho, values, values).sqrt_().add_(values.abs())
    half = torch.where(values < 0, larger / four_rho, larger.reciprocal())
    scaled = vectors.mul_(half.sqrt_().unsqueeze(-2))
    return cast(Tensor, scaled @ scaled.mT)


def half_theta_by_newton_schulz(b: Tensor, rho: Tensor) -> Tensor:
    """Compute the same Θ/2 = (√(B² + 4ρI) − B)/(4ρ) by matrix products.

    The coupled Newton–Schulz iteration takes Y → √M and Z → 1/√M for M = B² + 4ρI. The spectrum of
    M lies in [4ρ, √‖M²‖_F], so every step uses the polynomial that is optimal on the remaining
    interval.
    """
    y = torch.bmm(b, b)
    y.diagonal(dim1=-2, dim2=-1).add_(4 * rho.squeeze(-1))
    square = torch.bmm(y, y)
    largest = torch.linalg.matrix_norm(square, keepdim=True).sqrt_()
    first, *rest = _root_polynomials(float(torch.sqrt(4 * rho / largest).min()), y.dtype)
    y.div_(largest)
    # The first Z is the identity, so P = ZY is Y and the polynomial itself is the next Z.
    z = _polynomial(first, y, square.div_(largest.square()))
    y, free = torch.bmm(y, z, out=square), [y, torch.empty_like(y)]
    for step, coefficients in enumerate(rest, start=1):
        q, spare = _folded_polynomial(coefficients, torch.bmm(z, y, out=free[0]), free[1])
        y, old = torch.bmm(y, q, out=spare), y
        if step < len(rest):  # the last step no longer needs Z
            z, free = torch.bmm(q, z, out=old), [z, q]
    return y.mul_(torch.sqrt(largest) / (4 * rho)).addcmul_(b, 0.25 / rho, value=-1)


def _polynomial(coefficients: tuple[float, ...], p: Tensor, square: Tensor) -> Tensor:
    """Return c₀I + c₁P + c₂P² (+ c₃P³ + c₄P⁴, one more product) from P and P²; may overwrite P²."""
    constant, first, second, *higher = coefficients
    if higher:
        shift, first, second = _complete_square(coefficients)
        square = square.add_(p, alpha=shift)
    q = torch.mul(p, first).add_(square, alpha=second)
    q.diagonal(dim1=-2, dim2=-1).add_(constant)
    return q.baddbmm_(square, square, alpha=higher[1]) if higher else q


def _folded_polynomial(coefficients: tuple[float, ...], p: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same polynomial of P, and a free buffer; elementwise work is part of a product."""
    constant, first, second, *higher = coefficients
    if higher:
        shift, first, second = _complete_square(coefficients)
        square = torch.baddbmm(p, p, p, beta=shift, out=out)
        q, spare = p.mul_(first).add_(square, alpha=second).baddbmm_(square, square, alpha=higher[1]), square
    else:
        q, spare = torch.baddbmm(p, p, p, beta=first, alpha=second, out=out), p
    q.diagonal(dim1=-2, dim2=-1).add_(constant)
    return q, spare


def _complete_square(coefficients: tuple[float, ...]) -> tuple[float, float, float]:
    """Return a, b, c with c₁P + c₂P² + c₃P³ + c₄P⁴ = bP + cU + c₄U² for U = P² + aP."""
    _, first, second, third, fourth = coefficients
    shift = third / (2 * fourth)
    rest = second - fourth * shift**2
    return shift, first - rest * shift, rest


def _root_polynomials(lower: float, dtype: torch.dtype) -> tuple[tuple[float, ...], ...]:
    """Return the polynomials that map [lower, 1] to one, with the accuracy that ``dtype`` can use.

    An error δ of the root is one of 2δ/lower² in the smallest eigenvalues of Θ. In float32 an error
    of 1 % in those is comparable to rounding, and the duality gap depends on its square.
    """
    level = min(math.ceil(-4 * math.log2(lower)), 80) if 0 < lower < 1 else 0
    share = 2 ** (-level / 2)
    single = min(1e-4, max(1e-6, 5e-3 * share))
    return _cheapest_polynomials(level, single if dtype == torch.float32 else min(1e-11, max(1e-15, 5e-7 * share)))


@functools.cache
def _cheapest_polynomials(level: int, tol: float) -> tuple[tuple[float, ...], ...]:
    """Return the cheapest polynomials that map [2^(−level/4), 1] to one ± ``tol``.

    They have three or five terms. A sequence of n steps whose last m have five terms takes about 4n
    + m products.
    """
    plans = [(n, m) for n in range(1, 12) for m in range(n + 1)]
    for n, m in sorted(plans, key=lambda plan: 4 * plan[0] + plan[1]):
        steps, lower, upper = [], 2.0 ** (-level / 4), 1.0
        for step in range(n):
            coefficients, error = _minimax_odd_polynomial(5 if step >= n - m else 3, lower, upper)
            steps.append(coefficients)
            lower, upper = 1 - error, 1 + error
        if error <= tol:
            break
    return tuple(steps)


@functools.cache
def _minimax_odd_polynomial(terms: int, lower: float, upper: float) -> tuple[tuple[float, ...], float]:
    """Return the odd polynomial closest to one on an interval, and its error, by Remez exchange."""
    powers = 2 * np.arange(terms) + 1
    if upper - lower < 0.02:  # too narrow to locate the extrema; use the Taylor series of 1/√x²
        series = [math.comb(2 * k, k) / 4**k for k in range(terms + 1)]
        shifted = sum(c * Polynomial([1, -1]) ** k for k, c in enumerate(series[:-1]))
        return tuple(shifted.coef.tolist()), series[-1] * (1.05 * max(upper - lower, 1e-16)) ** terms
    nodes = 0.5 * (lower + upper) - 0.5 * (upper - lower) * np.cos(np.pi * np.arange(terms + 1) / terms)
    for _ in range(20):
        system = np.column_stack([nodes[:, None] ** powers, (-1.0) ** np.arange(terms + 1)])
        *coefficients, error = np.linalg.solve(system, np.ones(terms + 1)).tolist()
        extremes = np.roots((powers * coefficients)[::-1]).real.clip(lower**2, upper**2)
        nodes = np.concatenate([[lower], np.sort(np.sqrt(extremes)), [upper]])
    return tuple(coefficients), abs(error)


class Guard:
    """Detection of corrections whose errors grow; an exact step then starts them afresh.

    After failures in a row the next attempts are left out, because they cost up to two products.
    """

    def __init__(self) -> None:
        self.smallest = math.inf
        self.failures, self.resume = 0, 0

    def pauses(self, iteration: int) -> bool:
        """Return whether to take an exact step without an attempt."""
        return iteration < self.resume

    def record(self, succeeded: bool, iteration: int) -> bool:
        """Count failures in a row after the first iterations; return whether it succeeded."""
        self.failures = 0 if succeeded or iteration <= FIRST_ITERATIONS else self.failures + 1
        self.resume = iteration + max(1, min(self.failures, MAX_PAUSE))
        return succeeded

    def accepts(self, residual: float, iteration: int, most: float = MAX_RESIDUAL) -> bool:
        """Return whether the residual is not far above the smallest since the last exact step."""
        if iteration <= FIRST_ITERATIONS:
            self.smallest = math.inf  # the first residuals depend on the start
        accepted = residual < min(most, MAX_GROWTH * self.smallest)
        self.smallest = min(self.smallest, residual) if accepted else math.inf
        return accepted


def correct_theta_(
    theta: Tensor, b: Tensor, rho: Tensor, iteration: int, guard: Guard | None = None, probes: Tensor | None = None
) -> bool:
    """Move Θ in place towards the root by one inexact Newton step.

    Return False, and leave Θ unchanged, if the root is too far or the guard sees growing errors.

    The root solves the Riccati equation ρΘ² + (BΘ + ΘB)/2 = I. With K = B + ρΘ, which is Θ⁻¹ at the
    root, the Newton correction Δ solves the Lyapunov equation XΔ + ΔX = 2I − ΘK − KΘ with X = B +
    2ρΘ, whose eigenvalues are at least 2√ρ.

    B changes little between iterations of ADMM, so a few products suffice where the root from
    scratch needs ten. The step has no cancellation, and the next iteration corrects the remaining
    error.

    Args:
        theta: Previous Θ (B, D, D), symmetric.
        b: B (B, D, D), symmetric; overwritten if the step is taken.
        rho: ρ (B, 1, 1).
        iteration: Iteration of ADMM, counted from one.
        guard: Residuals of the earlier corrections.
        probes: Vectors (B, P, D) to find the outliers of X from, overwritten; without them, no
            eigenvalue is deflated.
    """
    guard = guard or Guard()
    if guard.pauses(iteration):
        return False
    x = b.addcmul_(theta, rho)
    excess = plus_transpose(torch.bmm(theta, x))
    excess.diagonal(dim1=-2, dim2=-1).sub_(2.0)
    residual = float(torch.linalg.vector_norm(excess, dim=(-2, -1)).max()) / (2 * math.sqrt(theta.shape[-1]))
    equation = Lyapunov(x.addcmul_(theta, rho), 2 * rho.sqrt(), probes)
    coefficients = equation.polynomial(iteration)
    most = MAX_RESIDUAL if equation.outliers is None else MAX_DEFLATED_RESIDUAL
    if not guard.record(bool(coefficients) and guard.accepts(residual, iteration, most), iteration):
        b.addcmul_(theta, rho, value=-2)
        return False
    equation.subtract_solution_(theta, excess, coefficients)
    return True
