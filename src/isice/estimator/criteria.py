"""Criteria for the choice of λ: held-out likelihood, EBIC, stability of edges (StARS)."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.covariance import log_likelihood
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state

from .._checks import check_int, check_number
from .covariances import (
    RANKS,
    Array,
    covariance,
    location,
    nearest_correlation,
    pair_samples,
    rank_correlation,
)

if TYPE_CHECKING:
    from .selection import SparsePrecisionCV


class Criterion(ABC):
    """Selection criterion on a grid of λ that can grow; results are in descending λ.

    Args:
        model: The estimator, whose options and solver are used.
        samples: Samples (N, D).
        weight: Their weights (N,), or None.
        cov: Covariance of all samples (D, D).
        y: Labels for splitters that stratify, or None.
        groups: Labels for splitters by group, or None.
    """

    min_grid_ratio = 1e-5  # of the largest λ, down to which the grid is extended
    can_improve_above = True  # whether λ above the best one can be better

    def __init__(
        self, model: "SparsePrecisionCV", samples: Array, weight: Array | None, cov: Array, y: Any, groups: Any
    ) -> None:
        self.model, self.cov = model, cov
        self.values: dict[float, Array] = {}
        self.prepare(samples, weight, y, groups)

    @property
    def grid(self) -> list[float]:
        """All λ so far, descending."""
        return sorted(self.values, reverse=True)

    def add(self, sparsities: Array, path: Iterable[Array]) -> None:
        """Evaluate further λ (L,), whose precision matrices of all samples are ``path``."""
        self.values.update(zip(sparsities.tolist(), self.evaluate(sparsities, path), strict=True))

    def table(self) -> Array:
        """Values of all λ (L, ...)."""
        return np.stack([self.values[value] for value in self.grid])

    def curve(self) -> Array:
        """One number for each λ (L,)."""
        return self.table()

    def spread(self) -> Array | None:
        """Return the standard error of the curve, or None."""
        return None

    def warning(self) -> str | None:
        """Return a warning about the best λ, or None."""
        return None

    @abstractmethod
    def prepare(self, samples: Array, weight: Array | None, y: Any, groups: Any) -> None:
        """Compute what does not depend on λ."""

    @abstractmethod
    def evaluate(self, sparsities: Array, path: Iterable[Array]) -> Array:
        """Values (L, ...) for λ (L,)."""

    @abstractmethod
    def best_index(self) -> int:
        """Index of the chosen λ in the grid."""


class HeldOutLikelihood(Criterion):
    """Gaussian log-likelihood of the samples left out (folds F): values (L, F)."""

    def prepare(self, samples: Array, weight: Array | None, y: Any, groups: Any) -> None:
        """Covariances of the training part of each fold."""
        self.samples, self.weight = samples, weight
        self.folds = list(check_cv(self.model.cv, y, classifier=False).split(samples, y, groups))
        if not self.folds:
            raise ValueError("SparsePrecisionCV: expected cv to give folds, got none; pass a list, not a generator.")
        if weight is not None:
            self.folds = [(train[weight[train] > 0], test[weight[test] > 0]) for train, test in self.folds]
        empty = [fold for fold, parts in enumerate(self.folds) if not all(len(part) for part in parts)]
        if empty:
            raise ValueError(
                "SparsePrecisionCV: expected samples of positive weight in the training and the test part of "
                f"every fold, got none in fold {', '.join(map(str, empty))}; leave out samples of weight zero."
            )
        self.train = self.model._part_covariances(samples, weight, [train for train, _ in self.folds], self.cov)

    @property
    def _from_ranks(self) -> bool:
        return isinstance(self.model._source, str) and self.model._source in RANKS

    def _test_covariance(self, fold: int) -> Array:
        """Covariance about the mean of the training part; from ranks, the test part's correlation.

        Ranks do not determine standard deviations, so only correlations are compared.
        """
        model, samples, weight, (train, test) = self.model, self.samples, self.weight, self.folds[fold]
        if self._from_ranks:
            return nearest_correlation(rank_correlation(samples[test], cast(str, model._source)))
        own, others = (None if weight is None else weight[part] for part in (test, train))
        mean = location(samples[train], others, model.assume_centered)
        return covariance(samples[test] - mean, "empirical", sample_weight=own, assume_centered=True)

    def evaluate(self, sparsities: Array, path: Iterable[Array]) -> Array:
        """Score each λ on each fold."""
        scores = np.empty((len(sparsities), len(self.folds)))
        tests: dict[int, Array] = {}
        for value, fold, result in self.model._solve_batches(self.train, sparsities):
            # Only the folds of one batch at a time are kept.
            tests = {f: tests[f] if f in tests else self._test_covariance(f) for f in fold.tolist()}
            precision = self._comparable(result.precision.cpu().numpy(), fold)
            scores[value, fold] = [log_likelihood(tests[f], p) for f, p in zip(fold.tolist(), precision, strict=True)]
            del result, precision
        unknown = np.flatnonzero(np.isnan(scores).any(axis=0))
        if len(unknown):
            raise ValueError(
                f"SparsePrecisionCV: expected samples with a covariance in every fold, got none in fold "
                f"{', '.join(str(fold) for fold in unknown)} (pairs never observed together); use fewer folds."
            )
        return scores

    def _comparable(self, precision: Array, fold: NDArray[Any]) -> Array:
        """Return precision matrices on the scale of the test covariances."""
        if not self._from_ranks:
            return precision
        scale = np.sqrt(self.train.variances[fold])
        return np.asarray(precision * scale[:, :, None] * scale[:, None, :])

    def curve(self) -> Array:
        """Mean over the folds."""
        return np.asarray(self.table().mean(axis=1))

    def spread(self) -> Array | None:
        """Return the standard error over the folds, or None for a single fold."""
        table = self.table()
        folds = table.shape[1]
        return np.asarray(table.std(axis=1, ddof=1) / np.sqrt(folds)) if folds > 1 else None

    def results(self) -> dict[str, Array]:
        """Mean, standard deviation and every split, as in scikit-learn's ``cv_results_``."""
        table = self.table()
        splits = {f"split{fold}_test_score": scores for fold, scores in enumerate(table.T)}
        return {
            "alphas": np.array(self.grid),
            "mean_test_score": self.curve(),
            "std_test_score": table.std(axis=1),
            **splits,
        }

    def best_index(self) -> int:
        """Largest mean score."""
        return int(np.argmax(self.curve()))


class ExtendedBIC(Criterion):
    """Extended Bayesian information criterion (L,)."""

    def prepare(self, samples: Array, weight: Array | None, y: Any, groups: Any) -> None:
        """Count the samples; with missing values, those that have both variables of a pair."""
        check_number("SparsePrecisionCV", "gamma", self.model._plain("gamma"))
        self.n = pair_samples(samples, weight)

    def evaluate(self, sparsities: Array, path: Iterable[Array]) -> Array:
        """−2 log-likelihood + edges · (log n + 4γ log D)."""
        pairs = [(np.linalg.slogdet(p)[1] - (self.cov * p).sum(), edges(p).sum()) for p in path]
        fit, count = self.n * np.array([fit for fit, _ in pairs]), np.array([count for _, count in pairs])
        return np.asarray(-fit + count * (np.log(self.n) + 4 * self.model.gamma * np.log(len(self.cov))))

    def best_index(self) -> int:
        """Smallest criterion."""
        return int(np.argmin(self.curve()))


class EdgeInstability(Criterion):
    """Mean instability of the edges over subsamples (L,), made monotone along the path."""

    min_grid_ratio = 1.0  # a complete graph is stable too, so smaller λ are not searched for
    can_improve_above = False

    def prepare(self, samples: Array, weight: Array | None, y: Any, groups: Any) -> None:
        """Draw the subsamples."""
        model, counted = self.model, np.arange(len(samples)) if weight is None else np.flatnonzero(weight)
        n = len(counted)
        check_number("SparsePrecisionCV", "instability", model._plain("instability"), strict=True)
        if model.instability >= 0.5:
            raise ValueError(f"SparsePrecisionCV: expected instability below 0.5, which no graph exceeds, got "
                             f"{model.instability:g}; 5 % is 0.05.")  # fmt: skip
        if n < 3:
            raise ValueError(
                f"SparsePrecisionCV: expected at least 3 samples of positive weight for selection='stars', got {n}."
            )
        check_int("SparsePrecisionCV", "n_subsamples", model._plain("n_subsamples"), minimum=2)
        rng = check_random_state(model.random_state)
        # 10√n as in Liu et al. (2010); 0.8 n for few samples.
        size = int(10 * np.sqrt(n)) if n > 144 else max(2, int(0.8 * n))
        parts = [rng.choice(counted, size, replace=False) for _ in range(model.n_subsamples)]
        self.covs = model._part_covariances(samples, weight, parts, self.cov)

    def evaluate(self, sparsities: Array, path: Iterable[Array]) -> Array:
        """Mean over the pairs of 2f(1 − f), where f is the share of subsamples with an edge."""
        size = self.cov.shape[-1]
        if size == 1:
            return np.zeros(len(sparsities))
        frequency = np.zeros((len(sparsities), size * (size - 1) // 2))
        for value, _, result in self.model._solve_batches(self.covs, sparsities):
            np.add.at(frequency, value, edges(result.precision.cpu().numpy()))
        frequency /= len(self.covs)
        return np.asarray(2 * (frequency * (1 - frequency)).mean(axis=1))

    def curve(self) -> Array:
        """Largest instability up to each λ."""
        return np.maximum.accumulate(self.table())

    def best_index(self) -> int:
        """Smallest λ whose graph is stable."""
        stable = np.flatnonzero(self.curve() <= self.model.instability)
        return int(stable[-1]) if len(stable) else 0

    def warning(self) -> str | None:
        """Report a grid without a stable graph."""
        if self.curve()[0] <= self.model.instability:
            return None
        return (
            f"no λ of the grid gives a stable graph: the smallest instability is {self.curve()[0]:.3g}, accepted is "
            f"{self.model.instability:g}; raise instability, add larger λ or more samples"
        )


def edges(precision: Array) -> NDArray[np.bool_]:
    """Which pairs i < j are connected: (..., D, D) → (..., D(D−1)/2)."""
    rows, columns = np.triu_indices(precision.shape[-1], 1)
    return np.asarray(precision[..., rows, columns] != 0)


CRITERIA: dict[str, type[Criterion]] = {"cv": HeldOutLikelihood, "ebic": ExtendedBIC, "stars": EdgeInstability}
