"""Solutions along descending λ, each from those before.

On a CPU Newton's method starts from the last solution, whose factor and inverse are known, and
searches its first step from the last change of Θ. Where one step is not enough, it starts from an
extrapolation instead. Where the graph is no longer sparse, ADMM starts from it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from .admm import common_level
from .certificate import cholesky
from .newton import Iterate, is_sparse, newton
from .small import SMALL_SIZE
from .solver import WHOLE_SIZE, Outputs, solve, solve_connected

MAX_STEPS = 3  # Newton steps from a warm start after which ADMM takes over for the rest of the path
MAX_SLOW = 2  # λ in a row with more than one Newton step after which the start is extrapolated
MAX_HALVINGS = 4  # of an extrapolation whose precision is indefinite


class Point(NamedTuple):
    """λ, precision and (W − S)/λ of a solution (B, D, D), in float32: a start needs few digits."""

    sparsity: float
    precision: Tensor
    signs: Tensor

    @classmethod
    def of(cls, sparsity: float, cov: Tensor, precision: Tensor, dual: Tensor) -> "Point":
        """Return the point of a solution."""
        signs = torch.sub(dual, cov.detach()).div_(sparsity or 1.0)
        return cls(sparsity, precision.detach().float(), signs.float())


def extrapolated(cov: Tensor, points: list[Point], sparsity: float) -> tuple[Tensor, Tensor]:
    """Continue precision and signs linearly in λ; return the precision and the dual, in float32.

    Zeros and signs of the precision stay. Where it becomes indefinite, shorter steps are taken. The
    dual may exceed its bounds.
    """
    rate = _rate(points, sparsity)
    first, last = points[0], points[-1]
    dual = torch.lerp(first.signs, last.signs, 1 + rate).mul_(sparsity).add_(cov.detach().float())
    for _ in range(MAX_HALVINGS):
        precision = _moved(first.precision, last.precision, rate)
        positive = torch.linalg.cholesky_ex(precision).info == 0
        if bool(positive.all()):
            return precision, dual
        rate = 0.5 * rate
    return torch.where(positive[..., None, None], precision, last.precision), dual


def _rate(points: list[Point], sparsity: float) -> float:
    """Return the next step in λ as a multiple of the last one, zero where there is none."""
    first, last = points[0].sparsity, points[-1].sparsity
    return (last - sparsity) / (first - last) if first > last > sparsity else 0.0


def _moved(first: Tensor, last: Tensor, rate: float) -> Tensor:
    trial = torch.lerp(first, last, 1 + rate)
    return trial.mul_(trial * last > 0)


def cpu_path(
    cov: Tensor, unit: Tensor, scale: Tensor, sparsities: list[float], tol: float, max_iter: int
) -> Iterator[Outputs]:
    """Solve float64 problems for descending λ, matrix by matrix.

    Args:
        cov: Standardized matrices (B, D, D).
        unit: Penalties for λ = 1, with a zero diagonal.
        scale: Standard deviations (B, D, 1), for the units of the results.
        sparsities: λ, descending.
        tol: Largest gap per variable.
        max_iter: Largest number of iterations.
    """
    paths = [_Path(s, u, tol, max_iter) for s, u in zip(cov, unit, strict=True)]
    del cov, unit  # release their memory
    standard = bool((scale == 1).all())
    for sparsity in sparsities:
        parts = [path.solve(sparsity) for path in paths]
        found = parts[0] if len(parts) == 1 else Outputs(*(torch.cat(t) for t in zip(*parts, strict=True)))
        del parts
        if not standard:
            # The next λ starts from the precision and the covariance, so these are copied.
            precision, covariance = (
                found.precision.div(scale).div_(scale.mT),
                found.covariance.mul(scale).mul_(scale.mT),
            )
            found = found._replace(precision=precision, covariance=covariance)
            found.dual.mul_(scale).mul_(scale.mT)
            del precision, covariance
        yield found
        del found  # release its memory


class _Path:
    """Path of one standardized problem (D, D)."""

    def __init__(self, cov: Tensor, unit: Tensor, tol: float, max_iter: int) -> None:
        level = common_level(unit[None])
        self.cov, self.unit, self.tol, self.max_iter = cov, unit if level is None else level, tol, max_iter
        self.points: list[Point] = []
        self.last: Iterate | None = None
        self.sparse = len(cov) > SMALL_SIZE  # smaller ones are faster by ADMM, whatever the graph
        self.slow = 0  # λ in a row that took more than one Newton step

    def solve(self, sparsity: float) -> Outputs:
        """Solve for the next λ."""
        penalty = torch.full_like(self.cov, sparsity).mul_(self.unit).fill_diagonal_(0.0)
        found = self._by_newton(penalty, sparsity) if self.last is not None else None
        if found is None:
            self.last = None
            found = self._by_solver(penalty, sparsity)
        self.points = [*self.points[-1:], Point.of(sparsity, self.cov, found.precision, found.dual)]
        return found

    def _by_solver(self, penalty: Tensor, sparsity: float) -> Outputs:
        cov, penalty = self.cov[None], penalty[None]
        if self.sparse or not self.points:
            found = solve(cov, penalty, self.tol, self.max_iter)
            if self.sparse:
                self.last = Iterate(found.precision[0], found.covariance[0], cholesky(found.precision))
            return found
        count, start = torch.tensor([len(self.cov)]), [torch.stack(extrapolated(cov, self.points, sparsity), dim=1)]
        self.points = self.points[-1:]  # release the memory of the other
        # Popped, so that the solver holds the only reference and can release it.
        return solve_connected(cov, penalty, count, self.tol, self.max_iter, start.pop(), None)

    def _by_newton(self, penalty: Tensor, sparsity: float) -> Outputs | None:
        """Return None, and end the use of the method, if the graph is not sparse or it fails."""
        size, start, guess = len(self.cov), self.last, None
        assert start is not None
        if size > WHOLE_SIZE and int(torch.count_nonzero(self.cov.abs() > penalty)) < 2 * size:
            return None  # components are small
        self.sparse = is_sparse(start.theta)
        if not self.sparse:
            return None
        rate, first = _rate(self.points, sparsity), self.points[0].precision[0]
        if self.slow < MAX_SLOW:
            guess = (start.theta - first).mul_(rate)
        else:
            start = Iterate.of(_moved(first.double(), start.theta, rate)) or start
        found = newton(self.cov, penalty, self.tol * size, start, min(self.max_iter, MAX_STEPS), guess)
        self.sparse = found is not None
        if found is None:
            return None
        solution, self.last = found
        self.slow = self.slow + 1 if self.slow >= MAX_SLOW or int(solution.n_iter) > 1 else 0
        return Outputs(solution.precision, self.last.inverse[None], solution.gap, solution.n_iter, solution.dual)
