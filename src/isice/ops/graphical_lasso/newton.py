"""Proximal Newton method for one sparse problem on a CPU.

A step minimizes the quadratic model of −logdet Θ + ⟨S, Θ⟩ plus the penalty over the free entries:
the support of Θ and the entries that violate the optimality conditions. The curvature P(W·W) of the
model costs one sparse-dense and one sampled product, so on a sparse graph a step costs little more
than the Cholesky factor and the inverse of Θ. Away from the free entries nothing is stored but Θ, W
and the dual.
"""

import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from .admm import Solution
from .certificate import cholesky, gap_of_factors

MAX_DEGREE = 0.16  # links per variable, as a share of D, above which ADMM is faster
SMALL_DEGREE = 14  # links per variable for which Newton's method is always faster
MAX_NEIGHBOURS = 16  # of a variable in the start
MAX_STEPS = 8  # Newton steps after which ADMM takes over
MAX_PRODUCTS = 40  # products with the curvature in one step
SMALL_SIZE, DENSE_SHARE = 100, 0.08  # size up to which, and share of free entries above which, products are dense
ROUND = 5  # steps of conjugate gradients on one active set
FIRST_ACCURACY, LAST_ACCURACY = 0.1, 1e-3  # relative accuracy of the minimum of the first and of the later models
MAX_HALVINGS = 6  # of a step's length
NEGLIGIBLE = 1e-15  # entries of the inverse, in a model that needs three digits


class Pattern(NamedTuple):
    """Entries of a symmetric matrix in compressed rows, and the index of each one's transpose."""

    row_starts: Tensor
    row: Tensor
    column: Tensor
    place: Tensor
    transposed: Tensor

    @classmethod
    def of(cls, mask: Tensor) -> "Pattern":
        """Return the entries of a symmetric mask (D, D)."""
        size = len(mask)
        place = mask.view(-1).nonzero()[:, 0]
        row = torch.div(place, size, rounding_mode="floor")
        column = place - size * row
        starts = torch.searchsorted(row, torch.arange(size + 1))
        return cls(starts, row, column, place, torch.argsort(column, stable=True))

    def take(self, matrix: Tensor) -> Tensor:
        """Return the values of a contiguous matrix."""
        return matrix.view(-1).index_select(0, self.place)


def links(cov: Tensor, penalty: Tensor) -> Pattern | None:
    """Return the graph |S_ij| > Λ_ij of one matrix (D, D), diagonal included; None if dense."""
    mask = cov.abs() > penalty
    return Pattern.of(mask) if is_sparse(mask) else None


def is_sparse(matrix: Tensor) -> bool:
    """Return whether a matrix (D, D) has few enough nonzero entries for Newton's method."""
    size = len(matrix)
    return int(torch.count_nonzero(matrix)) <= (1 + max(SMALL_DEGREE, MAX_DEGREE * size)) * size


class Iterate(NamedTuple):
    """Positive definite Θ (D, D), its inverse, and its Cholesky factor and status (1, D, D)."""

    theta: Tensor
    inverse: Tensor
    factor: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, theta: Tensor) -> "Iterate | None":
        """Factorize and invert Θ; None if it is not positive definite."""
        return cls.of_factor(theta, cholesky(theta[None]))

    @classmethod
    def of_factor(cls, theta: Tensor, factor: tuple[Tensor, Tensor]) -> "Iterate | None":
        """Invert Θ; None if its factor is that of an indefinite matrix."""
        # The transpose is contiguous.
        return cls(theta, torch.cholesky_inverse(factor[0][0]).mT, factor) if int(factor[1]) == 0 else None


def newton(
    cov: Tensor,
    penalty: Tensor,
    bound: float,
    start: Iterate | None,
    max_iter: int = MAX_STEPS,
    guess: Tensor | None = None,
) -> tuple[Solution, Iterate] | None:
    """Return the solution of one problem, with a batch dimension, and the last iterate.

    Args:
        cov: S (D, D) in float64 with a unit diagonal.
        penalty: Λ (D, D) with a zero diagonal.
        bound: Largest accepted gap.
        start: Point to start from, sparse.
        max_iter: Largest number of steps.
        guess: Expected change of Θ, from which the first model's minimum is searched.

    Returns:
        None if the method does not converge in a few steps.
    """
    now, model, accuracy = start, None, FIRST_ACCURACY
    for step in range(min(max_iter, MAX_STEPS) + 1):
        if now is None:
            return None
        excess = now.inverse - cov
        if model is not None and model.energy_at(now.theta, excess) <= 4 * bound:  # the gap is about half of it
            found = _certified(cov, penalty, bound, now, excess, step)
            if found is not None:
                return found, now
        free = excess.abs() > penalty
        free |= now.theta != 0
        model = Model(Pattern.of(free), now.inverse, now.theta, excess, penalty)
        if step == 0 and model.energy <= bound:
            found = _certified(cov, penalty, bound, now, excess, step)
            if found is not None:
                return found, now
        if step == 0 and guess is not None:
            model.move(guess)
        model.minimize(max(accuracy * accuracy * model.energy, 0.02 * bound))
        accuracy = LAST_ACCURACY
        now = _line_search(now, model, model.pattern.take(cov))
    return None


def _certified(cov: Tensor, penalty: Tensor, bound: float, now: Iterate, excess: Tensor, step: int) -> Solution | None:
    """Return the iterate with its dual point if the gap is at most ``bound``."""
    # Where Θ is not zero, the sum is beyond the bound of the dual.
    dual = torch.add(excess, now.theta).clamp_(-penalty, penalty).add_(cov)[None]
    linear = torch.dot(now.theta.view(-1), cov.view(-1)) + torch.dot(now.theta.abs().view(-1), penalty.view(-1))
    gap = gap_of_factors(linear, now.factor, cholesky(dual))
    if float(gap) > bound:
        return None
    return Solution(now.theta[None], dual, gap, torch.tensor([step]), cov.new_ones(1, 1, 1))


def local_start(cov: Tensor, penalty: Tensor, graph: Pattern) -> Tensor:
    """Return a sparse Θ from the neighbourhood of each variable, exact where the graph is a forest.

    The regression of variable i on its neighbours takes their covariance from S − Λ·sign where they
    are linked, and R_ij·R_ik, as near as the bounds allow, where they are not.
    """
    size, width = len(cov), int(torch.diff(graph.row_starts).max())
    slot = torch.arange(len(graph.row)) - graph.row_starts[graph.row]
    near, values = torch.zeros(size, width, dtype=torch.int64), cov.new_zeros(size, width)
    r, level = graph.take(cov), graph.take(penalty)
    near[graph.row, slot] = graph.column
    values[graph.row, slot] = (r - r.clamp(-level, level)).masked_fill_(graph.row == graph.column, 0.0)
    if width > MAX_NEIGHBOURS:
        strongest = values.abs().topk(MAX_NEIGHBOURS, dim=1, sorted=False).indices
        near, values = near.gather(1, strongest), values.gather(1, strongest)
    where = near[:, :, None] * size + near[:, None, :]
    pair, level = cov.view(-1)[where], penalty.view(-1)[where]
    linked = pair - pair.clamp(-level, level)
    product = values[:, :, None] * values[:, None, :]
    local = torch.where(linked != 0, linked, torch.clamp(product, pair - level, pair + level))
    real = values != 0
    local *= real[:, :, None] & real[:, None, :]
    local.diagonal(dim1=1, dim2=2).fill_(1.0)
    slope = torch.cholesky_solve(values[:, :, None], torch.linalg.cholesky_ex(local).L)[:, :, 0]
    diagonal = (1 - (slope * values).sum(1)).reciprocal()
    theta = torch.zeros_like(cov).scatter_add_(1, near, -slope * diagonal[:, None] * real)
    smaller = graph.take(theta)
    other = smaller[graph.transposed]
    theta.view(-1)[graph.place] = torch.where(smaller.abs() < other.abs(), smaller, other)
    theta.diagonal().copy_(diagonal)
    return theta


class Model:
    """Quadratic model of the objective over the free entries, and the iterate that minimizes it.

    Attributes:
        pattern: The free entries.
        start: Θ on them, in float64.
        values: The iterate, in float32: a direction needs few digits.
        energy: Squared length of the first proximal step in the metric of the curvature's diagonal.
    """

    def __init__(self, pattern: Pattern, inverse: Tensor, theta: Tensor, excess: Tensor, penalty: Tensor) -> None:
        # Entries that decay below the smallest float32 would make products many times slower.
        self.pattern, self.inverse = pattern, torch.nn.functional.hardshrink(inverse.float(), NEGLIGIBLE)
        self.start, self.level = pattern.take(theta), pattern.take(penalty)
        self.values, self.gradient = self.start.float(), pattern.take(excess).neg_().float()
        variance, entry = self.inverse.diagonal(), pattern.take(self.inverse)
        entry.masked_fill_(pattern.row == pattern.column, 0.0)
        self.curvature = torch.addcmul(variance[pattern.row] * variance[pattern.column], entry, entry)
        self.bounds = self.level.float()
        self.thresholds = self.bounds / self.curvature
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch announces compressed rows as a beta
            self.layout = None if self._is_dense() else self._matrix(self.values)
        self.products = 0
        self.energy = self._proximal_step()[1]

    def energy_at(self, theta: Tensor, excess: Tensor) -> float:
        """Return the energy at another Θ, of the same entries and in the same metric."""
        self.values, self.gradient = self.pattern.take(theta).float(), self.pattern.take(excess).neg_().float()
        return self._proximal_step()[1]

    def move(self, change: Tensor) -> None:
        """Add a change of Θ (D, D), as far as entries keep their signs."""
        change = self.pattern.take(change).float()
        change = torch.where((self.values + change) * self.values < 0, -self.values, change)
        self.values += change
        self.gradient += self._curve(change)

    def _is_dense(self) -> bool:
        size, count = len(self.inverse), len(self.values)
        return size <= SMALL_SIZE or count > DENSE_SHARE * size * size

    def _matrix(self, values: Tensor) -> Tensor:
        starts, column, shape = self.pattern.row_starts, self.pattern.column, self.inverse.shape
        return torch.sparse_csr_tensor(starts, column, values, shape, check_invariants=False)

    def _curve(self, values: Tensor) -> Tensor:
        """Return the entries of W·X·W."""
        self.products += 1
        if self.layout is None:
            matrix = torch.zeros_like(self.inverse)
            matrix.view(-1)[self.pattern.place] = values
            return self.pattern.take(self.inverse @ (matrix @ self.inverse))
        image = self._matrix(values) @ self.inverse
        sampled: Tensor = torch.sparse.sampled_addmm(self.layout, self.inverse, image, beta=0.0)
        return sampled.values()

    def _proximal_step(self) -> tuple[Tensor, float]:
        """Return the target of the proximal step and its energy."""
        moved = self.values - self.gradient / self.curvature
        target = moved.sub_(torch.clamp(moved, -self.thresholds, self.thresholds))
        change = target - self.values
        return target, float(torch.dot(change.square_(), self.curvature))

    def minimize(self, goal: float) -> None:
        """Alternate proximal steps, which choose the active set, and conjugate gradients on it."""
        signs = None
        while self.products < MAX_PRODUCTS:
            target, energy = self._proximal_step()
            if energy <= goal and signs is not None:
                break
            renewed = target.sign_()
            same = signs is not None and torch.equal(renewed, signs)
            signs = renewed
            self._conjugate_gradients(signs, 0.5 * goal, same)
        if signs is not None:
            self.values.masked_fill_(self.values * signs < 0, 0.0)

    def _conjugate_gradients(self, signs: Tensor, goal: float, final: bool) -> None:
        active = signs != 0
        leaving = self.values.masked_fill(active, 0.0)
        if bool(leaving.any()):
            self.values -= leaving
            self.gradient -= self._curve(leaving)
        residual = torch.addcmul(self.gradient, self.bounds, signs).neg_().mul_(active)
        direction = residual / self.curvature
        energy = float(torch.dot(residual, direction))
        if not final:
            goal = max(goal, 0.1 * energy)
        for _ in range(MAX_PRODUCTS if final else ROUND):
            if energy <= goal:
                break
            image = self._curve(direction)
            length = energy / float(torch.dot(direction, image))
            self.values.add_(direction, alpha=length)
            self.gradient.add_(image, alpha=length)
            residual.addcmul_(image, active, value=-length)
            scaled = residual / self.curvature
            renewed = float(torch.dot(residual, scaled))
            direction.mul_(renewed / energy).add_(scaled)
            energy = renewed


def _line_search(now: Iterate, model: Model, cov: Tensor) -> Iterate | None:
    """Return the minimum of the model, or halve the step until the objective decreases."""
    pattern, theta = model.pattern, torch.zeros_like(now.theta)
    values = model.values.double()
    other = values[pattern.transposed]
    values = torch.where(values * other > 0, 0.5 * (values + other), 0.0)

    def objective(values: Tensor, factor: Tensor) -> float:
        smooth = torch.dot(cov, values) + torch.dot(model.level, values.abs())
        return float(smooth - 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum())

    before = objective(model.start, now.factor[0])
    for _ in range(MAX_HALVINGS):
        theta.view(-1)[pattern.place] = values
        factor, info = cholesky(theta[None])
        if int(info) == 0 and objective(values, factor) <= before + 1e-12 * abs(before):
            return Iterate.of_factor(theta, (factor, info))
        values = 0.5 * (values + model.start)
    return None
