"""Choice of the sparsity by cross-validation, EBIC or StARS."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.covariance import empirical_covariance, log_likelihood
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state

from .._checks import check_choice, check_int, check_number
from ..ops.graphical_lasso import sparsity_max
from .sparse_precision import SparsePrecision, to_numpy

__all__ = ["SparsePrecisionCV"]


class SparsePrecisionCV(SparsePrecision):
    """:class:`SparsePrecision` with λ chosen from the data; all folds (or subsamples) and all λ are one batch.

    Args:
        selection: ``"cv"``: the best held-out log-likelihood; ``"ebic"``: the smallest extended Bayesian information
            criterion (Foygel and Drton 2010); ``"stars"``: the densest graph that stays stable under subsampling (Liu
            et al. 2010).
        sparsities: λ values to choose from, or how many to space logarithmically down from the smallest that gives a
            diagonal matrix to a hundredth of it.
        cv: Folds of ``"cv"``: a number or a scikit-learn splitter.
        gamma: Weight in ``"ebic"`` of the number of possible graphs, 0 (plain BIC) to 1.
        instability: Largest mean edge instability that ``"stars"`` accepts.
        n_subsamples: Subsamples of ``"stars"``.
        random_state: Seed of the subsamples.
        scale, penalize_diagonal, tol, max_iter, assume_centered, device: See :class:`SparsePrecision`.

    Attributes:
        sparsity_: The λ chosen.
        sparsities_: All λ, descending (L,).
        selection_curve_: For each λ the mean held-out score, the criterion, or the instability (L,).
        selection_spread_: Standard error over the folds (L,); None unless ``selection="cv"``.
        precision_path_: Precision matrices of all data for each λ (L, D, D).

    Example:
        >>> x = np.random.default_rng(0).normal(size=(60, 4))
        >>> model = SparsePrecisionCV(selection="ebic", sparsities=5).fit(x)
        >>> model.precision_path_.shape
        (5, 4, 4)
    """

    def __init__(
        self,
        *,
        selection: Literal["cv", "ebic", "stars"] = "cv",
        sparsities: int | Sequence[float] = 20,
        cv: Any = None,
        gamma: float = 0.5,
        instability: float = 0.05,
        n_subsamples: int = 20,
        random_state: Any = 0,
        scale: Literal["raw", "correlation", "trace"] = "correlation",
        penalize_diagonal: bool = False,
        tol: float = 1e-6,
        max_iter: int = 5000,
        assume_centered: bool = False,
        device: str = "cpu",
    ) -> None:
        self.selection = selection
        self.sparsities = sparsities
        self.cv = cv
        self.gamma = gamma
        self.instability = instability
        self.n_subsamples = n_subsamples
        self.random_state = random_state
        self.scale = scale
        self.penalize_diagonal = penalize_diagonal
        self.tol = tol
        self.max_iter = max_iter
        self.assume_centered = assume_centered
        self.device = device

    def fit(self, X: ArrayLike, y: Any = None) -> "SparsePrecisionCV":
        """Chooses λ and fits to samples X (N, D); ``y`` is ignored."""
        check_choice("SparsePrecisionCV", "selection", self.selection, ("cv", "ebic", "stars"))
        samples = self._validated(X)
        cov = self._covariance(samples)
        self.sparsities_ = self._grid(cov)
        path = [to_numpy(tensor) for tensor in self._solve(cov[None], self.sparsities_)]
        self.precision_path_, self.selection_spread_ = path[0], None
        best = {"cv": self._by_cv, "ebic": self._by_ebic, "stars": self._by_stars}[self.selection](samples, cov)
        self.sparsity_ = float(self.sparsities_[best])
        self._store(samples, *(array[best] for array in path))
        return self

    def fit_batch(self, subjects: Sequence[ArrayLike]) -> "list[SparsePrecision]":
        """Chooses λ and fits for each subject in turn; the folds and the path of each are one batch."""
        return [clone(self).fit(x) for x in subjects]

    def _grid(self, cov: np.ndarray) -> np.ndarray:
        if not isinstance(self.sparsities, int | np.integer):
            grid = np.sort(np.asarray(self.sparsities, dtype=np.float64).ravel())[::-1].copy()
            if len(grid) == 0 or not np.all(grid > 0):
                raise ValueError(f"SparsePrecisionCV: expected sparsities > 0, got {self.sparsities!r}.")
            return grid
        check_int("SparsePrecisionCV", "sparsities", int(self.sparsities), minimum=1)
        largest = float(sparsity_max(torch.as_tensor(cov), scale=self.scale)) or 1.0
        return np.geomspace(largest, 0.01 * largest, int(self.sparsities))

    def _by_cv(self, samples: np.ndarray, cov: np.ndarray) -> int:
        folds = list(check_cv(self.cv).split(samples))
        means = [0 * samples[0] if self.assume_centered else samples[train].mean(axis=0) for train, _ in folds]
        train_covs = np.stack([self._covariance(samples[train]) for train, _ in folds])
        test_covs = [
            empirical_covariance(samples[test] - mean, assume_centered=True)
            for (_, test), mean in zip(folds, means, strict=True)
        ]
        precision = to_numpy(self._solve(train_covs[None], self.sparsities_[:, None]).precision)
        scores = np.array([[log_likelihood(c, p) for c, p in zip(test_covs, row, strict=True)] for row in precision])
        self.selection_curve_ = scores.mean(axis=1)
        self.selection_spread_ = scores.std(axis=1) / np.sqrt(len(folds))
        return int(np.argmax(self.selection_curve_))

    def _by_ebic(self, samples: np.ndarray, cov: np.ndarray) -> int:
        check_number("SparsePrecisionCV", "gamma", self.gamma)
        n, size = samples.shape
        fit = n * (np.linalg.slogdet(self.precision_path_)[1] - (cov * self.precision_path_).sum(axis=(1, 2)))
        edges = _edges(self.precision_path_).sum(axis=1)
        self.selection_curve_ = -fit + edges * (np.log(n) + 4 * self.gamma * np.log(size))
        return int(np.argmin(self.selection_curve_))

    def _by_stars(self, samples: np.ndarray, cov: np.ndarray) -> int:
        check_number("SparsePrecisionCV", "instability", self.instability, strict=True)
        check_int("SparsePrecisionCV", "n_subsamples", self.n_subsamples, minimum=2)
        rng, n = check_random_state(self.random_state), len(samples)
        # The size that Liu et al. prove consistent, where there are enough samples for it.
        size = int(10 * np.sqrt(n)) if n > 144 else max(2, int(0.8 * n))
        parts = [samples[rng.choice(n, size, replace=False)] for _ in range(self.n_subsamples)]
        covs = np.stack([self._covariance(part) for part in parts])
        precision = to_numpy(self._solve(covs[None], self.sparsities_[:, None]).precision)
        frequency = _edges(precision).mean(axis=1)
        unstable = 2 * (frequency * (1 - frequency)).mean(axis=1) if frequency.shape[1] else np.zeros(len(precision))
        self.selection_curve_ = np.maximum.accumulate(unstable)
        stable = np.flatnonzero(self.selection_curve_ <= self.instability)
        return int(stable[-1]) if len(stable) else 0


def _edges(precision: np.ndarray) -> np.ndarray:
    """Which pairs i < j are connected: (..., D, D) → (..., D(D−1)/2)."""
    rows, columns = np.triu_indices(precision.shape[-1], 1)
    return precision[..., rows, columns] != 0
