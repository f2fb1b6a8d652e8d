"""Solutions along descending λ, each from those before.

On a CPU Newton's method starts from the last solution, whose factor and inverse are known, and
searches its first step from the last change of Θ. Where one step is not enough, it starts from an
extrapolation instead. Where the graph is no longer sparse, ADMM starts from it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from .autograd import Problem, standardize
from .certificate import cholesky
from .newton import Iterate, is_sparse, newton
from .solver import WHOLE_SIZE, Outputs, solve, solve_connected

MAX_STEPS = 3  # Newton steps from a warm start after which ADMM takes over for the rest of the path
MAX_SLOW = 2  # λ in a row with more than one Newton step after which the start is extrapolated
MAX_HALVINGS = 4  # of an extrapolation whose precision is indefinite


class Point(NamedTuple):
    """λ, precision and dual (B, D, D) of a solution."""

    sparsity: float
    precision: Tensor
    dual: Tensor


def extrapolated(cov: Tensor, points: list[Point], sparsity: float) -> tuple[Tensor, Tensor]:
    """Continue precision and dual linearly in λ, the dual by (W − S)/λ, its signs on the support.

    Zeros and signs of the precision stay. Where it becomes indefinite, the precision of shorter
    steps is taken. The dual may exceed its bounds.
    """
    last = points[-1]
    if len(points) == 1 or not points[0].sparsity > last.sparsity > sparsity > 0:
        return last.precision, last.dual
    first = points[0]
    rate = (sparsity - last.sparsity) / (last.sparsity - first.sparsity)
    v = torch.lerp((first.dual - cov).div_(first.sparsity), (last.dual - cov).div_(last.sparsity), 1 + rate)
    precision = last.precision
    for _ in range(MAX_HALVINGS):
        trial = _moved(first.precision, last.precision, rate)
        positive = torch.linalg.cholesky_ex(trial).info == 0
        if bool(positive.all()):
            precision = trial
            break
        precision = torch.where(positive[..., None, None], trial, precision)
        rate = 0.5 * rate
    return precision, v.mul_(sparsity).add_(cov)


def _moved(first: Tensor, last: Tensor, rate: float) -> Tensor:
    trial = torch.lerp(first, last, 1 + rate)
    return trial.mul_(trial * last > 0)


def cpu_path(problem: Problem, sparsities: list[float], tol: float, max_iter: int) -> Iterator[Outputs]:
    """Solve float64 problems for descending λ, matrix by matrix; the diagonal is not penalized.

    The penalty of ``problem`` is that of λ = 1.
    """
    standard, unit, scale, _ = standardize(problem.cov, problem.penalty, penalize_diagonal=False)
    units = None if bool((scale == 1).all()) else scale * scale.mT
    paths = [_Path(s, u, tol, max_iter) for s, u in zip(standard, unit, strict=True)]
    for sparsity in sparsities:
        parts = [path.solve(sparsity) for path in paths]
        found = parts[0] if len(parts) == 1 else Outputs(*(torch.cat(t) for t in zip(*parts, strict=True)))
        if units is not None:
            precision, covariance, dual = found.precision / units, found.covariance * units, found.dual * units
            found = found._replace(precision=precision, covariance=covariance, dual=dual)
        yield found


class _Path:
    """Path of one standardized problem (D, D)."""

    def __init__(self, cov: Tensor, unit: Tensor, tol: float, max_iter: int) -> None:
        self.cov, self.unit, self.tol, self.max_iter = cov, unit, tol, max_iter
        self.points: list[Point] = []
        self.inverse = cov  # of the last precision
        self.factor: tuple[Tensor, Tensor] | None = None
        self.sparse, self.slow = True, 0  # λ in a row that took more than one Newton step

    def solve(self, sparsity: float) -> Outputs:
        """Solve for the next λ."""
        penalty = self.unit * sparsity
        found = self._by_newton(penalty, sparsity) if self.points and self.sparse else None
        if found is None:
            self.factor = None
            found = self._by_solver(penalty, sparsity)
        self.points = [*self.points[-1:], Point(sparsity, found.precision, found.dual)]
        self.inverse = found.covariance[0]
        return found

    def _by_solver(self, penalty: Tensor, sparsity: float) -> Outputs:
        cov, penalty, size = self.cov[None], penalty[None], len(self.cov)
        if not self.points or self.sparse:
            return solve(cov, penalty, self.tol, self.max_iter)
        init = torch.stack(extrapolated(cov, self.points, sparsity), dim=1)
        return solve_connected(cov, penalty, torch.tensor([size]), self.tol, self.max_iter, init, None)

    def _by_newton(self, penalty: Tensor, sparsity: float) -> Outputs | None:
        """Return None, and end the use of the method, if the graph is not sparse or it fails."""
        size, last = len(self.cov), self.points[-1]
        if size > WHOLE_SIZE and int(torch.count_nonzero(self.cov.abs() > penalty)) < 2 * size:
            return None  # components are small
        theta, guess, start = last.precision[0], None, None
        self.sparse = is_sparse(theta)
        if not self.sparse:
            return None
        if len(self.points) == 2 and self.points[0].sparsity > last.sparsity > sparsity:
            rate = (sparsity - last.sparsity) / (last.sparsity - self.points[0].sparsity)
            if self.slow < MAX_SLOW:
                guess = (theta - self.points[0].precision[0]).mul_(rate)
            else:
                start = Iterate.of(_moved(self.points[0].precision[0], theta, rate))
        if start is None:
            start = Iterate(theta, self.inverse, self.factor or cholesky(theta[None]))
        found = newton(self.cov, penalty, self.tol * size, start, min(self.max_iter, MAX_STEPS), guess)
        self.sparse = found is not None
        if found is None:
            return None
        solution, now = found
        self.slow = self.slow + 1 if self.slow >= MAX_SLOW or int(solution.n_iter) > 1 else 0
        self.factor = now.factor
        return Outputs(solution.precision, now.inverse[None], solution.gap, solution.n_iter, solution.dual)
