"""The Θ-step of the graphical lasso's ADMM from the step before: one Newton step of ρΘ² + (BΘ + ΘB)/2 = I, inexact.

The root of Θ⁻¹ − ρΘ = B solves this Riccati equation. ADMM changes B little from one iteration to the next, so the last
Θ needs a correction only, and an error that is left is corrected the next time. That takes a few products where the
root from scratch takes ten, and nothing cancels: float32 gets as near to the solution as its rounding lets it.
"""

import functools
import math

import torch
from numpy.polynomial import Chebyshev, Polynomial
from torch import Tensor

from ._symmetric import plus_transpose

FAR = 2.0  # residual per variable, ‖I − sym(ΘK)‖_F/√D, from which on a Newton step is not to be trusted
CONTRACTION = 0.25  # what is left of the error of a step; less costs more in products than it saves in iterations
FIRST = 3, 0.2  # the first steps change most, and are solved better
MOST_TERMS = 10  # the root from scratch costs as much
PROBES = 8
MARGIN = 1.05  # for probes that happen to miss the largest eigenvalue


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
