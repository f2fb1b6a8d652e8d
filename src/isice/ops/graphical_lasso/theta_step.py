"""The Θ-step of the graphical lasso's ADMM: the positive definite root of Θ⁻¹ − ρΘ = B.

Both ways return Θ/2 up to rounding in the last bits; the caller adds the transpose and so makes Θ exactly symmetric.
"""

import functools
import math

import numpy as np
import torch
from numpy.polynomial import Chebyshev, Polynomial
from torch import Tensor

from .._linalg import plus_transpose

FAR = 2.0  # residual per variable, ‖I − sym(ΘK)‖_F/√D, from which on a Newton step is not to be trusted
CONTRACTION = 0.25  # what is left of the error of a step; less costs more in products than it saves in iterations
FIRST = 3, 0.2  # the first steps change most, and are solved better
MOST_TERMS = 10  # the root from scratch costs as much
PROBES = 8
MARGIN = 1.05  # for probes that happen to miss the largest eigenvalue


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


def newton_step_(theta: Tensor, b: Tensor, rho: Tensor, iteration: int) -> bool:
    """Corrects Θ in place towards the root of Θ⁻¹ − ρΘ = B; False, and Θ as it was, where that is too far away.

    With K = B + ρΘ, which is Θ⁻¹ at the root, the correction Δ solves XΔ + ΔX = 2I − ΘK − KΘ with X = B + 2ρΘ, whose
    eigenvalues lie between 2√ρ and its largest: a polynomial of Δ → XΔ + ΔX, one product a term.

    Args:
        theta: The last Θ (B, D, D), symmetric.
        b: B (B, D, D), symmetric; overwritten if the step is taken.
        rho: ρ (B, 1, 1).
        iteration: Counted from one.
    """
    x = b.addcmul_(theta, rho)
    product = torch.bmm(theta, x)
    excess = plus_transpose(product)
    excess.diagonal(dim1=-2, dim2=-1).sub_(2.0)
    x.addcmul_(theta, rho)
    smallest = 2 * rho.sqrt()
    error = FIRST[1] if iteration <= FIRST[0] else CONTRACTION
    coefficients = _inverse_on(_level(float((_largest(x) / smallest).max())), error)
    size = float(torch.linalg.vector_norm(excess, dim=(-2, -1)).max()) / (2 * math.sqrt(theta.shape[-1]))
    if not (coefficients and size < FAR):
        b.addcmul_(theta, rho, value=-2)
        return False
    unit = 0.5 / smallest  # of XΔ + ΔX
    scale = unit
    theta.addcmul_(excess, scale, value=-coefficients[0])
    for coefficient in coefficients[1:]:
        excess = plus_transpose(torch.bmm(x, excess, out=product))
        scale = scale * unit
        theta.addcmul_(excess, scale, value=-coefficient)
    return True


def _largest(matrix: Tensor) -> Tensor:
    """About the largest eigenvalues (B, 1, 1), rather above: (tr M¹²)^(1/12) from random vectors.

    That is a small part of a product. The power method would come from below, and later than the iterates change.
    """
    images = probes(matrix.shape[-1]).to(matrix).expand(len(matrix), -1, -1)
    for _ in range(6):
        images = torch.bmm(images, matrix)
    return MARGIN * torch.linalg.vector_norm(images, dim=(-2, -1), keepdim=True).pow_(1 / 6)


@functools.cache
def probes(size: int) -> Tensor:
    """Random vectors (P, D) whose squared images by a matrix M add up to about ‖M‖²."""
    return torch.randn(PROBES, size, generator=torch.Generator().manual_seed(0)) / math.sqrt(PROBES)


def _level(condition: float) -> int:
    """The condition number in steps of 1/24 of an octave, rounded up: few distinct polynomials to compute."""
    return math.ceil(24 * math.log2(max(condition, 1.1))) if condition < 1e6 else 480


@functools.cache
def _inverse_on(level: int, error: float) -> tuple[float, ...]:
    """Coefficients p₀, p₁, … that keep |1 − x·p(x)| ≤ ``error`` on [1, 2^(level/24)]; none if too many are needed.

    An interval that began below one would overshoot there, and over-relaxed ADMM might then not converge.
    """
    upper = 2.0 ** (level / 24)
    for terms in range(2, MOST_TERMS + 1):
        even = Chebyshev.basis(terms, domain=[1.0, upper]).convert(kind=Polynomial)
        if abs(even(0.0)) >= 1 / error:
            return tuple((-even.coef[1:] / even.coef[0]).tolist())
    return ()
