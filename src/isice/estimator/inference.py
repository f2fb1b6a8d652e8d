"""Inference after the fit: debiased estimates with p-values, bootstrap stability of edges."""

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import false_discovery_control, norm
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from .._checks import check_int, check_number
from .covariances import Array, effective_samples, partial_correlation
from .parameters import plain

BATCH = 16  # resamples solved at a time


class DebiasedPrecision(NamedTuple):
    """Result of :meth:`SparsePrecision.debiased`; all of shape (D, D).

    Attributes:
        precision: Debiased precision T = 2Θ − ΘSΘ, dense.
        standard_error: Asymptotic standard error of each entry.
        p_values: Two-sided p-values of the hypothesis that an entry is zero; NaN on the diagonal.
        q_values: p-values adjusted by Benjamini and Hochberg over the pairs i < j.
        edges: Whether the q-value is at most the accepted rate of false discoveries.
    """

    precision: Array
    standard_error: Array
    p_values: Array
    q_values: Array
    edges: Array


class EdgeStability(NamedTuple):
    """Result of :meth:`SparsePrecision.edge_stability`; all of shape (D, D).

    Attributes:
        frequency: Share of the bootstrap samples in which the edge is found.
        low: Lower end of the percentile interval of the partial correlation.
        high: Upper end.
    """

    frequency: Array
    low: Array
    high: Array


def debias(precision: Array, cov: Array, n_samples: float, fdr: float = 0.05) -> DebiasedPrecision:
    """Debias the graphical lasso (Janková and van de Geer 2015): T = 2Θ − ΘSΘ.

    Entries of √n(T − Θ₀) are asymptotically normal with variance Θ_ii Θ_jj + Θ_ij² where the true
    matrix is sparse enough: degree ≪ √n / log D.
    """
    debiased = 2 * precision - precision @ cov @ precision
    diagonal = np.diag(precision)
    error = np.sqrt((np.outer(diagonal, diagonal) + precision**2) / n_samples)
    p_values = 2 * norm.sf(np.abs(debiased) / error)
    rows, columns = np.triu_indices(len(precision), 1)
    q_values = np.full_like(p_values, np.nan)
    np.fill_diagonal(p_values, np.nan)
    if len(rows):
        adjusted = false_discovery_control(p_values[rows, columns], method="bh")
        q_values[rows, columns] = q_values[columns, rows] = adjusted
    return DebiasedPrecision(debiased, error, p_values, q_values, q_values <= fdr)


def _check_share(who: str, name: str, value: float) -> None:
    check_number(who, name, plain(value), strict=True)
    if value >= 1:
        raise ValueError(f"{who}: expected {name} between 0 and 1, got {value:g}; 5 % is 0.05.")


class InferenceMixin:
    """Methods of estimators that keep their sample covariance."""

    precision_: Array
    sample_covariance_: Array
    n_samples_: float | None
    _has_missing: bool
    weights: Any
    _source: Any

    def debiased(self, *, fdr: float = 0.05, n_samples: float | None = None) -> DebiasedPrecision:
        """Return the debiased precision with p-values and control of the false discovery rate.

        The theory is for the graphical lasso of the empirical covariance: leave ``weights``,
        ``reweight``, ``threshold``, ``refit`` and ``penalize_diagonal`` unset, or a warning says
        so. Its λ is of order √(log D / n) on the correlation scale. In finite samples strong
        edges stay biased, and a smaller λ covers them better.

        Args:
            fdr: Accepted expected share of false edges among those reported.
            n_samples: Number of samples, needed with a precomputed covariance or missing values.

        Example:
            >>> from isice.estimator import SparsePrecision
            >>> x = np.random.default_rng(0).normal(size=(200, 3))
            >>> x[:, 1] += x[:, 0]
            >>> SparsePrecision(0.1).fit(x).debiased().edges[0].tolist()
            [False, True, False]
        """
        who = type(self).__name__
        check_is_fitted(self, "precision_")
        _check_share(who, "fdr", fdr)
        if n_samples is None and self._has_missing:
            raise ValueError(
                f"{who}: expected complete samples for p-values, got missing values, which count for less; pass "
                "n_samples=, such as the smallest number of samples that have both variables of a pair."
            )
        if n_samples is not None:
            check_number(who, "n_samples", plain(n_samples), strict=True)
        options = ("reweight", "threshold", "refit", "penalize_diagonal")
        unsuitable = [name for name in options if getattr(self, name)]
        unsuitable += ["weights"] if self.weights is not None else []
        if not (isinstance(self._source, str) and self._source in ("empirical", "precomputed")):
            unsuitable.append(f"covariance_estimator={self._source!r}")
        if unsuitable:
            warnings.warn(
                f"{who}: expected the plain penalty of the empirical covariance for valid p-values, got "
                f"{', '.join(unsuitable)}; fit without.",
                UserWarning,
                stacklevel=2,
            )
        count = self.n_samples_ if n_samples is None else n_samples
        if count is None:
            raise ValueError(f"{who}: expected n_samples with a precomputed covariance, got None; pass n_samples=.")
        return debias(self.precision_, self.sample_covariance_, count, fdr)

    def edge_stability(
        self,
        X: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        n_bootstraps: int = 100,
        confidence: float = 0.95,
        random_state: Any = 0,
    ) -> EdgeStability:
        """Refit to bootstrap samples of X at the fitted λ and return how often each edge is found.

        Args:
            X: The samples (N, D) of the fit.
            sample_weight: Their weights (N,) if the fit had some; they are resampled with them.
            n_bootstraps: Number of bootstrap samples, solved in batches.
            confidence: Coverage of the percentile intervals of the partial correlations.
            random_state: Seed of the resampling.

        Example:
            >>> from isice.estimator import SparsePrecision
            >>> x = np.random.default_rng(0).normal(size=(200, 3))
            >>> x[:, 1] += x[:, 0]
            >>> stability = SparsePrecision(0.4).fit(x).edge_stability(x, n_bootstraps=20)
            >>> stability.frequency.round(1).tolist()
            [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
        """
        who, model = type(self).__name__, self._at_fitted_sparsity()  # type: ignore[attr-defined]
        check_int(who, "n_bootstraps", plain(n_bootstraps), minimum=2)
        _check_share(who, "confidence", confidence)
        if model.refit is not None or model.threshold > 0:
            raise ValueError(
                f"{who}: expected the penalized estimate for edge_stability, got refit={model.refit!r} and "
                f"threshold={model.threshold:g}; fit a model without them."
            )
        if self.n_samples_ is None:
            raise ValueError(f"{who}: expected a fit to samples, got one to a precomputed covariance.")
        validate_data(self, X, reset=False, skip_check_array=True)
        samples, weight = model._validated(X, sample_weight)
        if not np.isclose(effective_samples(samples, weight), self.n_samples_):
            raise ValueError(
                f"{who}: expected the samples of the fit with their sample_weight, which count as "
                f"{self.n_samples_:g}, got samples that count as {effective_samples(samples, weight):g}."
            )
        if weight is not None:
            samples, weight = samples[weight > 0], weight[weight > 0]
        rng, cov = check_random_state(random_state), model._covariance(samples, weight)
        parts = [rng.randint(len(samples), size=len(samples)) for _ in range(n_bootstraps)]
        covs = model._part_covariances(samples, weight, parts, cov)
        correlations = []
        for first in range(0, n_bootstraps, BATCH):
            precision = model._solve(covs[first : first + BATCH], model.sparsity).precision.cpu().numpy()
            correlations.append(partial_correlation(precision))
        found = np.concatenate(correlations)
        tail = 0.5 * (1 - confidence)
        low, high = np.quantile(found, [tail, 1 - tail], axis=0)
        return EdgeStability((found != 0).mean(axis=0), low, high)
