"""Approximate solution of the Lyapunov equation XΔ + ΔX = E by matrix products.

The solution is a polynomial of the operator Δ → XΔ + ΔX, applied to E. Its degree depends on the
condition number of X. A few outlying eigenvalues, as those of the factors of a factor model, are
deflated: on their eigenvectors the equation is solved directly.
"""

import functools
import math
from typing import NamedTuple, cast

import torch
from numpy.polynomial import Chebyshev, Polynomial
from torch import Tensor

from .._linalg import plus_transpose

CONTRACTION = 0.25  # remaining error of a correction; less costs more than it saves
FIRST_ITERATIONS, FIRST_CONTRACTION = 3, 0.2  # the first iterations change Θ most
DEFLATED_CONTRACTION = 0.1  # of a deflated equation, which takes few terms
LARGE_SIZE = 400  # size above which eigh costs about five products
MAX_TERMS, MAX_TERMS_LARGE = 10, 4  # of a correction; with more it costs as much as the root from scratch
N_PROBES = 8
PROBE_MARGIN = 1.05  # safety factor of the eigenvalue estimate by random probes
DEFLATED_SIZE = 320  # size from which deflation saves more than it costs
FIRST_ROUNDS = 4  # products that turn random probes towards the leading eigenvectors
OUTLYING = 2.5  # an outlier as a multiple of the smallest of the P leading eigenvalues


class Outliers(NamedTuple):
    """Outlying eigenvalues (B, P, 1) of X, rows of eigenvectors (B, P, D) and their images by X.

    They are zero where fewer than P eigenvalues are outlying.
    """

    values: Tensor
    vectors: Tensor
    images: Tensor


class Lyapunov:
    """Equation XΔ + ΔX = E for a symmetric X with eigenvalues above a bound.

    Attributes:
        outliers: Outlying eigenvalues that are deflated, if any.
        condition: Condition number without them, estimated from above.
    """

    def __init__(self, x: Tensor, smallest: Tensor, probes: Tensor | None = None) -> None:
        """Take X (B, D, D), the bound (B, 1, 1) and perhaps probes, as :func:`leading_outliers`."""
        self.x, self.smallest = x, smallest
        self.outliers = None if probes is None else leading_outliers(x, probes)
        if self.outliers is not None:
            values, vectors, images = self.outliers
            self.x = _without(x, vectors, images, torch.diag_embed(values[:, :, 0]))
        self.largest = largest_eigenvalue(self.x)
        self.condition = float((self.largest / smallest).max())

    def polynomial(self, iteration: int) -> tuple[float, ...]:
        """Return :func:`correction_polynomial` for this equation."""
        return correction_polynomial(self.condition, iteration, self.x.shape[-1], self.outliers is not None)

    def subtract_solution_(self, theta: Tensor, excess: Tensor, coefficients: tuple[float, ...]) -> None:
        """Subtract from Θ the solution for a symmetric E = ``excess`` by a polynomial."""
        if self.outliers is not None:
            excess = self._subtract_on(self.outliers, theta, excess)
        unit = 0.5 / self.smallest  # reciprocal of the smallest eigenvalue of Δ → XΔ + ΔX
        scale, product = unit, None
        theta.addcmul_(excess, scale, value=-coefficients[0])
        for coefficient in coefficients[1:]:
            product = torch.bmm(self.x, excess, out=product)
            excess = plus_transpose(product)
            scale = scale * unit
            theta.addcmul_(excess, scale, value=-coefficient)

    def _subtract_on(self, outliers: Outliers, theta: Tensor, excess: Tensor) -> Tensor:
        """Subtract from Θ the solution on the outliers; return E without its part on them.

        Between an outlier and the rest, all eigenvalues of the rest count as their middle, which
        changes the sum with an outlier by little.
        """
        values, vectors, _ = outliers
        image = torch.bmm(vectors, excess)
        inner = torch.bmm(image, vectors.mT)
        mixed = torch.baddbmm(image, inner, vectors, alpha=-1).div_(values + 0.5 * (self.smallest + self.largest))
        sums = (values + values.mT).clamp_(min=torch.finfo(values.dtype).tiny)  # zero where unused
        theta.sub_(plus_transpose(torch.bmm(vectors.mT, mixed.baddbmm_(inner / sums, vectors, alpha=0.5))))
        return _without(excess, vectors, image, inner)


def _without(matrix: Tensor, vectors: Tensor, image: Tensor, inner: Tensor) -> Tensor:
    """Return QMQ for Q = I − UUᵀ, exactly symmetric, given Uᵀ, UᵀM and UᵀMU."""
    half = torch.baddbmm(image, inner, vectors, alpha=-0.5)
    return matrix - plus_transpose(torch.bmm(vectors.mT, half))


def leading_outliers(x: Tensor, probes: Tensor) -> Outliers | None:
    """Find outliers of X (B, D, D) by a step of subspace iteration; None if there are none.

    The probes (B, P, D) are vectors near the leading eigenvectors; overwritten by closer ones.
    """
    basis = torch.linalg.qr(torch.bmm(probes, x).div_(frobenius_norm(x)).mT).Q
    moved = torch.bmm(x, basis)
    projected = torch.bmm(basis.mT, moved)
    if not bool(torch.isfinite(projected).all()):
        return None
    values, rotation = torch.linalg.eigh(projected)
    vectors = torch.bmm(basis, rotation).mT
    probes.copy_(vectors)
    outlying = values > OUTLYING * values[:, :1]
    if not bool(outlying.any()):
        return None
    chosen = outlying.to(x.dtype)[:, :, None]
    return Outliers(values[:, :, None] * chosen, vectors * chosen, torch.bmm(moved, rotation).mT * chosen)


def first_probes(matrix: Tensor) -> Tensor:
    """Return random probes (B, P, D) turned towards the leading eigenvectors of a matrix."""
    images, norm = random_probes(matrix.shape[-1]).to(matrix).expand(len(matrix), -1, -1), frobenius_norm(matrix)
    for _ in range(FIRST_ROUNDS):
        images = torch.bmm(images, matrix).div_(norm)
    return images


def frobenius_norm(matrix: Tensor) -> Tensor:
    """Return Frobenius norms (B, 1, 1)."""
    return cast(Tensor, torch.linalg.vector_norm(matrix, dim=(-2, -1), keepdim=True))


def largest_eigenvalue(matrix: Tensor) -> Tensor:
    """Estimate the largest eigenvalues (B, 1, 1) from above by a few random probes.

    (tr M¹²)^(1/12) is above the eigenvalue if several contribute. If one dominates, its estimate
    depends on that eigenvector's share of the probes, but the power method has converged.
    """
    images = random_probes(matrix.shape[-1]).to(matrix).expand(len(matrix), -1, -1)
    for _ in range(5):
        images = torch.bmm(images, matrix)
    before, norm = frobenius_norm(images), frobenius_norm(torch.bmm(images, matrix))
    return PROBE_MARGIN * torch.maximum(norm.pow(1 / 6), norm / before)


@functools.cache
def random_probes(size: int) -> Tensor:
    """Return fixed random vectors (P, D); their squared images by M sum to about ‖M‖²."""
    return torch.randn(N_PROBES, size, generator=torch.Generator().manual_seed(0)) / math.sqrt(N_PROBES)


def correction_polynomial(condition: float, iteration: int, size: int, deflated: bool = False) -> tuple[float, ...]:
    """Return the coefficients of a correction, empty if it costs as much as the root from scratch.

    Condition numbers are rounded up to 1/24 octave, so that few polynomials are computed.
    """
    error = FIRST_CONTRACTION if iteration <= FIRST_ITERATIONS else CONTRACTION
    error = DEFLATED_CONTRACTION if deflated else error
    level = math.ceil(24 * math.log2(max(condition, 1.1))) if condition < 1e6 else 480
    coefficients = _inverse_polynomial(level, error)
    return coefficients if len(coefficients) <= (MAX_TERMS_LARGE if size > LARGE_SIZE else MAX_TERMS) else ()


@functools.cache
def _inverse_polynomial(level: int, error: float) -> tuple[float, ...]:
    """Return coefficients of p with |1 − x·p(x)| ≤ ``error`` on [1, 2^(level/24)].

    They are empty if it takes more than MAX_TERMS. The interval starts at one exactly: overshooting
    below it could keep over-relaxed ADMM from converging.
    """
    upper = 2.0 ** (level / 24)
    for terms in range(2, MAX_TERMS + 1):
        even = Chebyshev.basis(terms, domain=[1.0, upper]).convert(kind=Polynomial)
        if abs(even(0.0)) >= 1 / error:
            return tuple((-even.coef[1:] / even.coef[0]).tolist())
    return ()
