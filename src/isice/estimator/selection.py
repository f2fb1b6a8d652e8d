"""Choice of the sparsity by cross-validation, EBIC or StARS."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from .._checks import check_choice, check_int, check_number
from ..ops.graphical_lasso import GraphicalLassoResult, solve_path, sparsity_max
from .covariances import Array, partial_correlation
from .criteria import CRITERIA, Criterion, HeldOutLikelihood
from .parameters import threads, to_numpy
from .parts import PartCovariances
from .sparse_precision import SparsePrecision

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["SparsePrecisionCV"]

Places = NDArray[np.intp]

PATH_SIZE = 64  # number of variables from which a path with warm starts is faster than a batch of all λ
FLOATS_PER_ENTRY = 14  # that the solver uses for each entry of a matrix
REWEIGHTING_FLOATS_PER_ENTRY = 56  # with the weights and the solution before, measured
BETWEEN = 3  # λ values that a refinement inserts on either side of the best one


@dataclass(eq=False, repr=False, kw_only=True)
class SparsePrecisionCV(SparsePrecision):
    """:class:`SparsePrecision` with λ chosen from the data; folds and λ are solved in batches.

    The grid is refined around the best λ, and extended where the best is its smallest.

    Args:
        selection: ``"cv"``: the best held-out log-likelihood; ``"ebic"``: the smallest extended
            Bayesian information criterion (Foygel and Drton 2010); ``"stars"``: the densest graph
            that stays stable under subsampling (Liu et al. 2010).
        sparsities: λ values to choose from, or how many to space logarithmically down from the
            smallest that gives a diagonal matrix to ``min_ratio`` of it.
        min_ratio: The smallest λ of the first grid, as a share of the largest.
        n_refinements: How often the grid is refined around the best λ. Where the best is the
            smallest, the grid is first extended, down to 1e-5 of the largest. 0, or a list of
            ``sparsities``, keeps the grid.
        cv: Folds of ``"cv"``: a number, by default 5, or a scikit-learn splitter.
        gamma: Weight in ``"ebic"`` of the number of possible graphs, 0 (plain BIC) to 1.
        instability: Largest mean edge instability that ``"stars"`` accepts.
        n_subsamples: Subsamples of ``"stars"``.
        random_state: Seed of the subsamples.
        max_memory: Bytes that the solver may use: folds, subsamples and λ are solved as many at a
            time as fit, at least one. The data, at most 32 MiB of covariances of folds or
            subsamples, and the path, kept sparse, come on top.
        alphas: scikit-learn's name: the same as ``sparsities=alphas, scale="raw"``.
        scale, penalize_diagonal, weights, covariance_estimator, missing, reweight: See
            :class:`SparsePrecision`.
        threshold, refit: See :class:`SparsePrecision`; they apply to the final
            estimate, after λ is chosen.
        tol, max_iter, assume_centered, device, n_jobs, verbose, covariance: See
            :class:`SparsePrecision`.

    Attributes:
        sparsity_: The λ chosen.
        alpha_: The same, under scikit-learn's name.
        sparsities_: All λ, descending (L,).
        selection_curve_: For each λ the mean held-out score, the
            criterion, or the instability (L,).
        selection_spread_: Standard error over the folds (L,) for ``selection="cv"`` with several
            folds, otherwise None.
        cv_results_: As in scikit-learn: ``"alphas"``, ``"mean_test_score"``, ``"std_test_score"``
            and the score of each split, for ``selection="cv"``.
        precision_path_: Precision matrices of all data for each λ (L, D, D), kept sparse and filled
            on access.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(60, 4))
        >>> model = SparsePrecisionCV(selection="ebic", sparsities=5, n_refinements=0).fit(x)
        >>> model.precision_path_.shape
        (5, 4, 4)
    """

    _synonyms = (("sparsities", "alphas"), ("covariance_estimator", "covariance"))

    sparsity: float = field(default=0.1, init=False)  # it is chosen
    alpha: float | None = field(default=None, init=False)
    selection: Literal["cv", "ebic", "stars"] = "cv"
    sparsities: int | Sequence[float] = 20
    min_ratio: float = 0.01
    n_refinements: int = 2
    cv: Any = None
    gamma: float = 0.5
    instability: float = 0.05
    n_subsamples: int = 20
    random_state: Any = 0
    max_memory: float = 2**27
    alphas: int | Sequence[float] | None = None

    def fit(
        self,
        X: ArrayLike,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Choose λ and fit to samples X (N, D), optionally weighted (N,).

        Args:
            X: Samples.
            y: Ignored, except by splitters that stratify.
            sample_weight: Weights of the samples (N,).
            groups: Labels (N,) for splitters such as ``GroupKFold``.
        """
        check_choice("SparsePrecisionCV", "selection", self.selection, CRITERIA)
        samples, weight = self._validated(X, sample_weight)
        if self._source == "precomputed":
            raise ValueError("SparsePrecisionCV: expected samples, got covariance_estimator='precomputed'; λ cannot be "
                             "chosen without them. Use SparsePrecision.")  # fmt: skip
        cov = self._covariance(samples, weight)
        criterion = CRITERIA[self.selection](self, samples, weight, cov, y, groups)
        self._path, gap, n_iter = self._search(criterion, cov)
        best = criterion.best_index()
        self.sparsities_ = np.array(criterion.grid)
        self.selection_curve_, self.selection_spread_ = criterion.curve(), criterion.spread()
        self.__dict__.pop("cv_results_", None)  # of an earlier fit
        if isinstance(criterion, HeldOutLikelihood):
            self.cv_results_ = criterion.results()
        self._warn_at_edge(criterion, best, cov)
        chosen = self._path[best].toarray()
        inverse = np.linalg.inv(chosen)
        solution = chosen, 0.5 * (inverse + inverse.T), gap[best], n_iter[best]
        self._store(samples, weight, cov, float(self.sparsities_[best]), *solution)
        self.alpha_ = self.sparsity_
        return self

    def fit_batch(self, subjects: Sequence[ArrayLike]) -> list[Self]:
        """Choose λ and fit for each subject in turn; its folds and its path are one batch each."""
        return [clone(self).fit(x) for x in subjects]

    def plot_path(self, **options: Any) -> "Axes":
        """Draw partial correlations against λ; options of :func:`isice.graph_plots.plot_path`."""
        from ..graph_plots import plot_path

        check_is_fitted(self, "precision_path_")
        path = partial_correlation(self.precision_path_)
        return plot_path(self.sparsities_, path, **{"chosen": self.sparsity_, **options})

    def plot_selection(self, **options: Any) -> "Axes":
        """Draw the selection curve; options of :func:`isice.graph_plots.plot_selection`."""
        from ..graph_plots import plot_selection

        return plot_selection(self, **options)

    @property
    def precision_path_(self) -> Array:
        """Precision matrices of all data for each λ (L, D, D)."""
        check_is_fitted(self, "_path")
        path = np.empty((len(self._path), *self._path[0].shape))
        for place, precision in enumerate(self._path):
            path[place] = precision.toarray()
        return path

    @property
    def _unit(self) -> str:
        return self.scale if self.alphas is None else "raw"

    def _solve_batches(
        self, covs: Array | PartCovariances, sparsities: Array
    ) -> Iterator[tuple[Places, Places, GraphicalLassoResult]]:
        """Solve matrices (P, D, D) for every λ (L,) in batches that fit into ``max_memory``.

        Yield the places of the λ and of the matrices, and the result of each batch.
        """
        floats = FLOATS_PER_ENTRY if self.reweight is None else REWEIGHTING_FLOATS_PER_ENTRY
        bytes_each = floats * 8 * covs.shape[-1] ** 2
        count = max(1, int(self.max_memory // bytes_each))
        if covs.shape[-1] >= PATH_SIZE and self.reweight is None:
            # On a CPU a path goes matrix by matrix anyway.
            yield from self._paths(covs, sparsities, 1 if torch.device(self.device).type == "cpu" else count)
            return
        total = len(sparsities) * len(covs)
        for first in range(0, total, count):
            matrix, value = np.divmod(np.arange(first, min(first + count, total)), len(sparsities))
            yield value, matrix, self._solve(covs[matrix], sparsities[value])

    def _paths(
        self, covs: Array | PartCovariances, sparsities: Array, count: int
    ) -> Iterator[tuple[Places, Places, GraphicalLassoResult]]:
        """Solve ``count`` matrices at a time along the path, each λ from the solutions before."""
        grid, options = torch.as_tensor(sparsities, device=self.device), self._solver_options()
        for first in range(0, len(covs), count):
            part = torch.as_tensor(covs[first : first + count], dtype=torch.float64, device=self.device)
            matrix = np.arange(first, first + len(part))
            with threads(self.n_jobs):
                path = solve_path(part, grid, **options)
                for value in range(len(grid)):  # enumerate() would keep a result while the next is computed
                    yield np.full(len(matrix), value), matrix, next(path)

    def _search(self, criterion: Criterion, cov: Array) -> tuple[list[csr_array], Array, Array]:
        """Evaluate the first grid, then refine or extend it.

        Return the precision, gap and iterations of all data along the path.
        """
        new, refinements = self._grid(cov), 0
        solutions: dict[float, tuple[csr_array, float, int]] = {}  # sparse, to leave the memory to the solver
        while True:
            for value, _, result in self._solve_batches(cov[None], new):
                precision, gap, n_iter = (to_numpy(t) for t in (result.precision, result.gap, result.n_iter))
                for sparsity, *solution in zip(
                    new[value].tolist(), map(csr_array, precision), gap, n_iter, strict=True
                ):
                    solutions[sparsity] = tuple(solution)
                del result, precision  # release their memory
            criterion.add(new, (solutions[value][0].toarray() for value in new.tolist()))
            grid, best = criterion.grid, criterion.best_index()
            if self.verbose:
                print(f"SparsePrecisionCV: {len(grid)} values of λ, best {grid[best]:.4g}")
            if not self._automatic or len(grid) == 1 or self.n_refinements == 0:
                break
            smallest = criterion.min_grid_ratio * grid[0]
            if best == len(grid) - 1 and grid[-1] > smallest * (1 + 1e-9):
                new = np.geomspace(grid[-1], max(0.1 * grid[-1], smallest), 2 * BETWEEN + 1)[1:]
            elif refinements < self.n_refinements:
                around = grid[max(best - criterion.can_improve_above, 0) : best + 2]
                new, refinements = _between(around), refinements + 1
                if len(new) == 0:
                    break
            else:
                break
        path, gaps, counts = zip(*(solutions[sparsity] for sparsity in criterion.grid), strict=True)
        return list(path), np.array(gaps), np.array(counts)

    @property
    def _automatic(self) -> bool:
        return isinstance(self._grid_option, int | np.integer) and not isinstance(self._grid_option, bool)

    @property
    def _grid_option(self) -> Any:
        return self.sparsities if self.alphas is None else self.alphas

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number("SparsePrecisionCV", "min_ratio", self._plain("min_ratio"), strict=True)
        if self.min_ratio >= 1:
            raise ValueError(f"SparsePrecisionCV: expected min_ratio below 1, got {self.min_ratio:g}.")
        check_int("SparsePrecisionCV", "n_refinements", self._plain("n_refinements"), minimum=0)
        check_number("SparsePrecisionCV", "max_memory", self._plain("max_memory"), strict=True)

    def _grid(self, cov: Array) -> Array:
        if not self._automatic:
            try:
                given = np.asarray(self._grid_option, dtype=np.float64)
            except (TypeError, ValueError):  # no numbers
                given = np.empty(0)
            if given.ndim != 1 or not len(given) or not np.all((given > 0) & np.isfinite(given)):
                raise ValueError(
                    "SparsePrecisionCV: expected sparsities as a number of values or a sequence of finite numbers > 0, "
                    f"got {self._grid_option!r}; pass a penalty per entry as weights=."
                )
            return np.sort(given)[::-1].copy()
        count = int(self._grid_option)
        check_int("SparsePrecisionCV", "sparsities", count, minimum=1)
        largest = self._largest(cov)
        return np.geomspace(largest, self.min_ratio * largest, count)

    def _largest(self, cov: Array) -> float:
        """Smallest λ that gives a diagonal matrix, apart from entries without penalty."""
        weights = None
        if self.weights is not None:
            given = np.asarray(self.weights, dtype=np.float64)
            weights = torch.as_tensor(np.where(given > 0, given, np.inf))
        return float(sparsity_max(torch.as_tensor(cov), weights=weights, scale=self._unit)) or 1.0

    def _warn_at_edge(self, criterion: Criterion, best: int, cov: Array) -> None:
        message = criterion.warning()
        grid, largest = criterion.grid, self._largest(cov)
        if message is None and best == len(grid) - 1 and len(grid) > 1:
            message = (
                f"the best λ, {grid[best]:.3g}, is the smallest of the grid; lower min_ratio or add smaller values"
            )
        elif message is None and best == 0 and len(grid) > 1 and grid[0] < largest * (1 - 1e-9):
            message = f"the best λ, {grid[best]:.3g}, is the largest of the grid; add values up to {largest:.3g}"
        if message is not None:
            warnings.warn(f"SparsePrecisionCV: {message}.", UserWarning, stacklevel=3)


def _between(values: list[float]) -> Array:
    """λ between successive values, descending."""
    inner = [np.geomspace(left, right, BETWEEN + 2)[1:-1] for left, right in pairwise(values)]
    return np.concatenate(inner) if inner else np.array([])
