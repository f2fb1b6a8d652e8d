"""Θ-step of ADMM for one small problem on a CPU, in NumPy."""

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from .lyapunov import CONTRACTION, FIRST_CONTRACTION, FIRST_ITERATIONS, MAX_TERMS
from .theta_step import Guard, half_theta_by_eigh

Matrix = NDArray[Any]  # float32 or float64

MAX_CONDITION = 1e4  # far above that of a series of MAX_TERMS
SMALL_RESIDUAL = 0.1  # residual at which a correction is taken even if it has grown
LONG_SERIES = 4  # terms from which a decomposition pays off once ρ is constant


class SmallThetaStep:
    """Θ-steps of one problem: corrections as :func:`.theta_step.correct_theta_`, or exact roots.

    The Lyapunov equation of a correction is solved by a Chebyshev series. Once ρ has settled, an
    ill-conditioned X is decomposed instead, and its eigenvectors serve the later equations, too,
    until the residual grows.

    Attributes:
        theta: The last Θ.
        settled: Iteration after which ρ changes only at restarts, and a decomposition may pay off.
    """

    def __init__(self, theta: Matrix, settled: int) -> None:
        self.theta, self.settled = theta, settled
        self.guard = Guard()
        self.basis: Eigenbasis | None = None

    def __call__(self, b: Matrix, rho: float, iteration: int) -> Matrix:
        """Return the root of Θ⁻¹ − ρΘ = B, exact or corrected."""
        size, scaled = len(b), rho * self.theta
        x = b + scaled
        excess = plus_transpose(self.theta @ x)
        excess.reshape(-1)[:: size + 1] -= 2.0
        x += scaled
        half = self._half_correction(x, excess, 2 * math.sqrt(rho), iteration)
        if half is None:
            root = half_theta_by_eigh(torch.from_numpy(b), torch.from_numpy(np.full((1, 1), rho, b.dtype)))
            self.theta = plus_transpose(root.numpy())
        else:
            self.theta = self.theta - plus_transpose(half)
        return self.theta

    def _half_correction(self, x: Matrix, excess: Matrix, smallest: float, iteration: int) -> Matrix | None:
        """Return Δ/2 of XΔ + ΔX = E, perhaps not exactly symmetric; None to take an exact root."""
        residual = norm(excess) / (2 * math.sqrt(len(x)))
        if self.basis is not None and self.guard.accepts(residual, iteration):
            return self.basis.half_solution(excess)
        self.basis = None
        series = inverse_series(math.sqrt(norm(x @ x)) / smallest, iteration)
        if series is None or not (self.guard.accepts(residual, iteration) or residual < SMALL_RESIDUAL):
            return None
        if iteration > self.settled and len(series.coefficients) >= LONG_SERIES:
            self.basis = Eigenbasis.of(x, smallest)
            return self.basis.half_solution(excess)
        return series.half_solution(x, excess, smallest)


class Eigenbasis(NamedTuple):
    """Eigenvectors of an X, their transpose, and half the reciprocal sums of two eigenvalues."""

    vectors: Matrix
    transposed: Matrix
    weights: Matrix

    @classmethod
    def of(cls, x: Matrix, smallest: float) -> "Eigenbasis":
        values, vectors = (tensor.numpy() for tensor in torch.linalg.eigh(torch.from_numpy(x)))
        values = np.maximum(values, smallest)  # up to errors of X it is the bound
        transposed = np.ascontiguousarray(vectors.T)
        return cls(np.ascontiguousarray(vectors), transposed, 0.5 / (values[:, None] + values))

    def half_solution(self, excess: Matrix) -> Matrix:
        """Return Δ/2 of XΔ + ΔX = E."""
        inner = self.transposed @ excess @ self.vectors
        inner *= self.weights
        solution: Matrix = self.vectors @ inner @ self.transposed
        return solution


class Series(NamedTuple):
    """Approximation Σ b_k U_k(y) of 1/x on [1, c], by Chebyshev polynomials of the second kind.

    In float32 their recurrence is accurate, and the powers of x are not.

    Attributes:
        coefficients: b_k.
        slope, shift: y = slope·x − shift, which maps [1, c] to [−1, 1].
    """

    coefficients: NDArray[np.float64]
    slope: float
    shift: float

    def half_solution(self, x: Matrix, excess: Matrix, smallest: float) -> Matrix:
        """Return Δ/2 of XΔ + ΔX = E by the series in Δ → (XΔ + ΔX)/(2·smallest); overwrites X."""
        x *= self.slope / smallest
        x.reshape(-1)[:: len(x) + 1] -= self.shift
        terms = np.empty((len(self.coefficients), *x.shape), x.dtype)
        terms[0] = excess
        for k in range(1, len(terms)):
            product = x @ terms[k - 1]
            np.add(product, product.T, out=terms[k])
            if k > 1:
                terms[k] -= terms[k - 2]
        coefficients = ((0.25 / smallest) * self.coefficients).astype(x.dtype)
        solution: Matrix = coefficients.dot(terms.reshape(len(terms), -1)).reshape(x.shape)
        return solution


def inverse_series(condition: float, iteration: int) -> Series | None:
    """Return the series of a correction; None if it costs as much as an exact root.

    Condition numbers are rounded up to 1/24 octave, so that few series are computed.
    """
    if not condition < MAX_CONDITION:
        return None
    error = FIRST_CONTRACTION if iteration <= FIRST_ITERATIONS else CONTRACTION
    return _series(math.ceil(24 * math.log2(max(condition, 1.1))), error)


@functools.cache
def _series(level: int, error: float) -> Series | None:
    """Return the shortest series p with |1 − x·p(x)| ≤ ``error`` on [1, 2^(level/24)], if any.

    1 − x·p(x) is the Chebyshev polynomial of the interval, divided by its value at zero.
    """
    upper = 2.0 ** (level / 24)
    middle, radius = (upper + 1) / 2, (upper - 1) / 2
    for terms in range(2, MAX_TERMS + 1):
        at_zero = (-1) ** terms * math.cosh(terms * math.acosh(middle / radius))
        if abs(at_zero) >= 1 / error:
            remainder = np.zeros(terms + 1)
            remainder[0], remainder[terms] = 1.0, -1 / at_zero
            first_kind = np.append(chebyshev.chebdiv(remainder, [middle, radius])[0], [0.0, 0.0])
            first_kind[0] *= 2
            return Series(0.5 * (first_kind[:-2] - first_kind[2:]), 1 / radius, middle / radius)
    return None


def plus_transpose(matrix: Matrix) -> Matrix:
    """Return M + Mᵀ."""
    return matrix + matrix.T


def norm(matrix: Matrix) -> float:
    """Return the Frobenius norm."""
    return math.sqrt(np.vdot(matrix, matrix))
