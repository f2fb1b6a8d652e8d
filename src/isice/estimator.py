"""The scikit-learn face of the exact solver: sparse precision matrices with a certificate, and the choice of λ."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.covariance import EmpiricalCovariance, empirical_covariance, log_likelihood
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from ._checks import check_choice, check_int, check_number
from .ops.correlation import partial_correlation
from .ops.graphical_lasso import SCALES, GraphicalLassoResult, graphical_lasso, sparsity_max

__all__ = ["SparsePrecision", "SparsePrecisionCV"]


class SparsePrecision(EmpiricalCovariance):
    """Sparse inverse covariance of samples (N, D), solved to a certified duality gap.

    Args:
        sparsity: λ ≥ 0.
        scale: Unit of λ: ``"correlation"``, as if the variables had unit variance, so that λ ≥ 1 always gives a
            diagonal matrix; ``"raw"`` for scikit-learn's ``alpha``; ``"trace"``.
        penalize_diagonal: Whether the diagonal is penalized too.
        tol: Largest duality gap, as a multiple of D.
        max_iter: Iterations after which a warning reports the gap reached.
        assume_centered: Whether the data have mean zero already.
        device: Where to solve, such as ``"cuda"``.

    Attributes:
        precision_: Sparse inverse covariance (D, D), with exact zeros.
        covariance_: Its inverse (D, D).
        partial_correlation_: −Θ_ij/√(Θ_ii Θ_jj), unit diagonal (D, D).
        dual_gap_: The objective is at most this far above its minimum.
        n_iter_: Iterations.
        location_: Mean (D,).

    Example:
        >>> x = np.random.default_rng(0).normal(size=(200, 4))
        >>> model = SparsePrecision(sparsity=0.5).fit(x)
        >>> int(np.count_nonzero(model.precision_))
        4
    """

    store_precision = True

    def __init__(
        self,
        sparsity: float = 0.1,
        *,
        scale: Literal["raw", "correlation", "trace"] = "correlation",
        penalize_diagonal: bool = False,
        tol: float = 1e-6,
        max_iter: int = 5000,
        assume_centered: bool = False,
        device: str = "cpu",
    ) -> None:
        self.sparsity = sparsity
        self.scale = scale
        self.penalize_diagonal = penalize_diagonal
        self.tol = tol
        self.max_iter = max_iter
        self.assume_centered = assume_centered
        self.device = device

    def fit(self, X: ArrayLike, y: Any = None) -> "SparsePrecision":
        """Fits to samples X (N, D); ``y`` is ignored."""
        samples = self._validated(X)
        result = self._solve(self._covariance(samples), self.sparsity)
        return self._store(samples, *(_to_numpy(tensor) for tensor in result))

    def fit_batch(self, subjects: Sequence[ArrayLike]) -> "list[SparsePrecision]":
        """Fits one estimator per subject, all as one batch; the subjects share D but not the number of samples.

        Example:
            >>> rng = np.random.default_rng(0)
            >>> models = SparsePrecision().fit_batch([rng.normal(size=(n, 5)) for n in (30, 40, 50)])
            >>> [model.precision_.shape for model in models]
            [(5, 5), (5, 5), (5, 5)]
        """
        models = [clone(self) for _ in subjects]
        samples = [model._validated(x) for model, x in zip(models, subjects, strict=True)]
        sizes = {x.shape[1] for x in samples}
        if len(sizes) != 1:
            raise ValueError(
                f"SparsePrecision: expected subjects with the same number of variables, got {sorted(sizes) or 'none'}."
            )
        result = self._solve(np.stack([self._covariance(x) for x in samples]), self.sparsity)
        parts = zip(*(_to_numpy(tensor) for tensor in result), strict=True)
        return [model._store(x, *part) for model, x, part in zip(models, samples, parts, strict=True)]

    def _validated(self, X: ArrayLike) -> np.ndarray:
        self._check_parameters()
        return validate_data(self, X, dtype=np.float64, ensure_min_samples=2)

    def _check_parameters(self) -> None:
        who, options = type(self).__name__, self.get_params(deep=False)
        plain = {name: v.item() if isinstance(v, np.generic) else v for name, v in options.items()}
        check_choice(who, "scale", plain["scale"], SCALES)
        check_number(who, "tol", plain["tol"], strict=True)
        check_int(who, "max_iter", plain["max_iter"], minimum=1)
        if "sparsity" in plain:
            check_number(who, "sparsity", plain["sparsity"])

    def _covariance(self, samples: np.ndarray) -> np.ndarray:
        return empirical_covariance(samples, assume_centered=self.assume_centered)

    def _solve(self, cov: np.ndarray, sparsity: float | np.ndarray) -> GraphicalLassoResult:
        return graphical_lasso(
            torch.as_tensor(cov, dtype=torch.float64, device=self.device),
            torch.as_tensor(sparsity, dtype=torch.float64),
            scale=self.scale,
            penalize_diagonal=self.penalize_diagonal,
            tol=float(self.tol),
            max_iter=int(self.max_iter),
        )

    def _store(
        self, samples: np.ndarray, precision: np.ndarray, covariance: np.ndarray, gap: np.ndarray, n_iter: np.ndarray
    ) -> "SparsePrecision":
        self.location_ = np.zeros(samples.shape[1]) if self.assume_centered else samples.mean(axis=0)
        self.precision_, self.covariance_ = precision, covariance
        self.partial_correlation_ = partial_correlation(torch.as_tensor(precision)).numpy()
        self.dual_gap_, self.n_iter_ = float(gap), int(n_iter)
        return self


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
        path = [_to_numpy(tensor) for tensor in self._solve(cov[None], self.sparsities_)]
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
        precision = _to_numpy(self._solve(train_covs[None], self.sparsities_[:, None]).precision)
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
        precision = _to_numpy(self._solve(covs[None], self.sparsities_[:, None]).precision)
        frequency = _edges(precision).mean(axis=1)
        unstable = 2 * (frequency * (1 - frequency)).mean(axis=1) if frequency.shape[1] else np.zeros(len(precision))
        self.selection_curve_ = np.maximum.accumulate(unstable)
        stable = np.flatnonzero(self.selection_curve_ <= self.instability)
        return int(stable[-1]) if len(stable) else 0


def _edges(precision: np.ndarray) -> np.ndarray:
    """Which pairs i < j are connected: (..., D, D) → (..., D(D−1)/2)."""
    rows, columns = np.triu_indices(precision.shape[-1], 1)
    return precision[..., rows, columns] != 0


def _to_numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()
