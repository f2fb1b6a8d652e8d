"""The Θ-step of the graphical lasso's ADMM: the positive definite root of Θ⁻¹ − ρΘ = B.

Both ways return Θ/2 up to rounding in the last bits; the caller adds the transpose and so makes Θ exactly symmetric.
"""

import functools
import math

import numpy as np
import torch
from torch import Tensor


def half_prox_by_eigh(b: Tensor, rho: Tensor) -> Tensor:
    """Θ/2 from the eigenvalues w of ``b``: (√(w² + 4ρ) − w)/(4ρ), in the form that never cancels.

    Args:
        b: Symmetric matrices (B, D, D).
        rho: Penalty parameters (B, 1, 1).
    """
    values, vectors = torch.linalg.eigh(b)
    four_rho = 4 * rho.squeeze(-1)
    larger = torch.addcmul(four_rho, values, values).sqrt_().add_(values.abs())
    half = torch.where(values < 0, larger / four_rho, larger.reciprocal())
    return (vectors * half.unsqueeze(-2)) @ vectors.mT


def half_prox_by_newton_schulz(b: Tensor, rho: Tensor) -> Tensor:
    """The same Θ/2 = (√(B² + 4ρI) − B)/(4ρ) from products alone, which take a fraction of the time of eigenvalues.

    The spectrum of M = B² + 4ρI lies in [4ρ, √‖M²‖_F], so each step of the coupled iteration Y → √M, Z → 1/√M can be
    the polynomial that is best on the interval that is left; the first step needs M² anyway.
    """
    y = torch.bmm(b, b)
    y.diagonal(dim1=-2, dim2=-1).add_(4 * rho.squeeze(-1))
    square = torch.bmm(y, y)
    largest = torch.linalg.matrix_norm(square, keepdim=True).sqrt_()
    first, *rest = _steps(float(torch.sqrt(4 * rho / largest).min()), y.dtype)
    y.div_(largest)
    # Z is the identity here, so P = ZY is Y, and the polynomial itself is the next Z.
    z = _polynomial(first, y.clone(), square.div_(largest.square()), None)
    y, free = torch.bmm(y, z, out=square), [y, torch.empty_like(y)]
    for step, coefficients in enumerate(rest, start=1):
        p = torch.bmm(z, y, out=free[0])
        square = torch.bmm(p, p, out=free[1])
        spare = z if step == len(rest) else None  # Z has served when the last step begins
        q = _polynomial(coefficients, p, square, spare)
        y, old = torch.bmm(y, q, out=square), y
        if step < len(rest):
            z, free = torch.bmm(q, z, out=old), [z, q]
    return y.mul_(torch.sqrt(largest)).sub_(b).div_(4 * rho)


def _polynomial(coefficients: tuple[float, ...], p: Tensor, square: Tensor, spare: Tensor | None) -> Tensor:
    """c₀I + c₁P + c₂P² (+ c₃P³ + c₄P⁴, for one product more) from P and P²; overwrites P."""
    constant, first, second, *higher = coefficients
    if higher:
        factor = torch.mul(p, higher[0], out=spare).add_(square, alpha=higher[1])
    p.mul_(first).add_(square, alpha=second).diagonal(dim1=-2, dim2=-1).add_(constant)
    return p.baddbmm_(square, factor) if higher else p


def _steps(lower: float, dtype: torch.dtype) -> tuple[tuple[float, ...], ...]:
    """The polynomials that take [lower, 1] to one.

    An error δ of the root is one of 2δ/lower² in the smallest eigenvalues of Θ. In float32 a hundredth in those is
    no worse than rounding; the gap feels its square.
    """
    level = min(math.ceil(-4 * math.log2(lower)), 80) if 0 < lower < 1 else 0
    share = 2 ** (-level / 2)
    single = min(1e-4, max(1e-6, 5e-3 * share))
    return _cheapest_steps(level, single if dtype == torch.float32 else min(1e-11, max(1e-15, 5e-7 * share)))


@functools.cache
def _cheapest_steps(level: int, enough: float) -> tuple[tuple[float, ...], ...]:
    """Coefficients of the steps, of three or five terms each, that take [2^(−level/4), 1] to within ``enough`` of one.

    Of n steps the last m have five terms: about 4n + m products.
    """
    plans = [(n, m) for n in range(1, 12) for m in range(n + 1)]
    for n, m in sorted(plans, key=lambda plan: 4 * plan[0] + plan[1]):
        steps, lower, upper = [], 2.0 ** (-level / 4), 1.0
        for step in range(n):
            coefficients, error = _best_odd_polynomial(5 if step >= n - m else 3, lower, upper)
            steps.append(coefficients)
            lower, upper = 1 - error, 1 + error
        if error <= enough:
            break
    return tuple(steps)


@functools.cache
def _best_odd_polynomial(terms: int, lower: float, upper: float) -> tuple[tuple[float, ...], float]:
    """Coefficients of x, x³, x⁵, … that come nearest to one on an interval, and their error, by Remez' exchange."""
    powers = 2 * np.arange(terms) + 1
    if upper - lower < 0.02:  # Taylor's series of 1/√x², where extremes can no longer be told apart
        series = [math.comb(2 * k, k) / 4**k for k in range(terms + 1)]
        shifted = sum(c * np.polynomial.Polynomial([1, -1]) ** k for k, c in enumerate(series[:-1]))
        return tuple(shifted.coef.tolist()), series[-1] * (1.05 * max(upper - lower, 1e-16)) ** terms
    nodes = 0.5 * (lower + upper) - 0.5 * (upper - lower) * np.cos(np.pi * np.arange(terms + 1) / terms)
    for _ in range(20):
        system = np.column_stack([nodes[:, None] ** powers, (-1.0) ** np.arange(terms + 1)])
        *coefficients, error = np.linalg.solve(system, np.ones(terms + 1)).tolist()
        extremes = np.roots((powers * coefficients)[::-1]).real.clip(lower**2, upper**2)
        nodes = np.concatenate([[lower], np.sort(np.sqrt(extremes)), [upper]])
    return tuple(coefficients), abs(error)
