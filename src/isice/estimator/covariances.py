"""Covariance of samples: weighted, with missing values, from ranks, or by scikit-learn."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, rankdata
from sklearn.base import clone

from .._checks import check_choice

Array: TypeAlias = NDArray[np.float64]

RANKS = ("spearman", "kendall", "nonparanormal")
NAMES = ("empirical", "precomputed", *RANKS)


def check_covariance_estimator(who: str, estimator: Any) -> None:
    """Raise unless ``estimator`` is one of the names or has a ``fit`` method."""
    if isinstance(estimator, str):
        check_choice(who, "covariance_estimator", estimator, NAMES)
    elif not hasattr(estimator, "fit") or isinstance(estimator, type):
        raise TypeError(
            f"{who}: expected covariance_estimator to be a name or a scikit-learn covariance estimator, "
            f"got {estimator!r}; pass an instance such as LedoitWolf()."
        )


def location(samples: Array, sample_weight: Array | None, assume_centered: bool) -> Array:
    """Weighted mean of the observed values of each variable (D,)."""
    if assume_centered:
        return np.zeros(samples.shape[1])
    if not np.isnan(samples).any():
        return np.asarray(np.average(samples, axis=0, weights=sample_weight))
    weight = _weight(samples, sample_weight)[:, None] * ~np.isnan(samples)
    return np.asarray((weight * np.nan_to_num(samples)).sum(axis=0) / weight.sum(axis=0))


def constant_variables(samples: Array, assume_centered: bool = False) -> NDArray[np.bool_]:
    """Return which variables (D,) are constant, ignoring missing values, but not never observed.

    With ``assume_centered`` these are the variables that are zero throughout.
    """
    missing = np.isnan(samples)
    if assume_centered:
        return np.asarray((missing | (samples == 0)).all(axis=0))
    lowest, highest = np.where(missing, np.inf, samples).min(axis=0), np.where(missing, -np.inf, samples).max(axis=0)
    return np.asarray(highest == lowest)


def effective_samples(samples: Array, weight: Array | None) -> float:
    """Return the number of samples; with weights, Kish's effective size (Σw)²/Σw²."""
    return float(len(samples) if weight is None else weight.sum() ** 2 / (weight**2).sum())


def pair_samples(samples: Array, weight: Array | None) -> float:
    """Return the mean over pairs of variables of the number of samples that have both."""
    counts = effective_samples(samples, weight)
    if not np.isnan(samples).any() or samples.shape[1] == 1:
        return counts
    observed, share = (~np.isnan(samples)).astype(np.float64), _weight(samples, weight)
    together = (observed * (share / share.sum())[:, None]).T @ observed
    return float(counts * together[np.triu_indices(len(together), 1)].mean())


def covariance(
    samples: Array, estimator: Any, *, sample_weight: Array | None = None, assume_centered: bool = False
) -> Array:
    """Covariance matrix (D, D) of samples (N, D), positive semi-definite.

    Args:
        samples: Observations; NaN marks a missing value.
        estimator: ``"empirical"``, one of :data:`RANKS`, or a scikit-learn covariance estimator.
        sample_weight: Non-negative weights (N,), for ``"empirical"`` only.
        assume_centered: Whether the data have mean zero already.
    """
    if not isinstance(estimator, str):
        if np.isnan(samples).any():
            raise ValueError(
                f"SparsePrecision: expected samples without NaN for covariance_estimator={estimator!r}, got missing "
                f"values; impute, or use one of {', '.join(map(repr, ('empirical', *RANKS)))}."
            )
        return np.asarray(clone(estimator).fit(samples).covariance_, dtype=np.float64)
    if estimator in RANKS:
        correlation = nearest_correlation(rank_correlation(samples, estimator))
        deviation = np.nanstd(samples, axis=0)
        return np.asarray(correlation * np.outer(deviation, deviation))
    if np.isnan(samples).any():
        cov = _pairwise_covariance(samples, sample_weight, assume_centered)
        deviation = np.sqrt(np.diag(cov))
        safe = np.where(deviation > 0, deviation, 1.0)
        correlation = cov / np.outer(safe, safe)
        np.fill_diagonal(correlation, 1.0)  # also of variables without variance
        return np.asarray(nearest_correlation(correlation) * np.outer(deviation, deviation))
    centred = samples - location(samples, sample_weight, assume_centered)
    weight = _weight(samples, sample_weight)
    return np.asarray((centred * weight[:, None]).T @ centred / weight.sum())


def _weight(samples: Array, sample_weight: Array | None) -> Array:
    return np.ones(len(samples)) if sample_weight is None else sample_weight


def _pairwise_covariance(samples: Array, sample_weight: Array | None, assume_centered: bool) -> Array:
    """Return pairwise-complete correlations times the standard deviations of the variables."""
    observed = (~np.isnan(samples)).astype(np.float64)
    weight = _weight(samples, sample_weight)
    _check_pairs(observed[weight > 0], 1 if assume_centered else 2)
    centred = np.nan_to_num(samples - location(samples, sample_weight, assume_centered))
    weighted = observed * weight[:, None]
    count = weighted.T @ observed
    values = centred * observed
    mean = np.zeros_like(count) if assume_centered else ((weighted * values).T @ observed) / count
    square = ((weighted * values**2).T @ observed) / count - mean**2
    product = ((weighted * values).T @ values) / count - mean * mean.T
    scale = np.sqrt(np.maximum(square * square.T, 0.0))
    correlation = np.divide(product, scale, out=np.zeros_like(product), where=scale > 0)
    deviation = np.sqrt(np.diag(square))
    return np.asarray(correlation * np.outer(deviation, deviation))


def _check_pairs(observed: Array, least: int) -> None:
    """Raise unless every pair of variables is observed (N, D) together in ``least`` samples."""
    count = observed.T @ observed
    rare = np.flatnonzero(np.diag(count) < least)
    if len(rare):
        raise ValueError(
            f"SparsePrecision: expected at least {least} observed values of each variable, in every fold too, got "
            f"{int(count[rare[0], rare[0]]) or 'none'} of {rare[0]}; drop it, impute or use fewer folds."
        )
    if (count < least).any():
        i, j = np.argwhere(count < least)[0]
        raise ValueError(
            f"SparsePrecision: expected at least {least} samples that observe each pair of variables, got "
            f"{int(count[i, j]) or 'none'} for {i} and {j}; drop one of them or impute."
        )


def rank_correlation(samples: Array, name: str) -> Array:
    """Correlation (D, D) of the Gaussian copula from ranks; not always positive semi-definite.

    ``"spearman"`` is 2 sin(πρ/6) and ``"kendall"`` sin(πτ/2) (Liu et al. 2012), with τ_b where
    values are tied; ``"nonparanormal"`` is the correlation of the normal scores Φ⁻¹(rank/(n + 1)).
    Spearman's ranks and the normal scores are among all observed values of a variable.
    """
    if name == "kendall":
        result = np.sin(0.5 * np.pi * _kendall(samples))
    else:
        ranks = rankdata(samples, axis=0, nan_policy="omit")
        if name == "nonparanormal":
            ranks = norm.ppf(ranks / (1 + (~np.isnan(samples)).sum(axis=0)))
        cov = _pairwise_covariance(ranks, None, assume_centered=False)
        deviation = np.sqrt(np.diag(cov))
        scale = np.outer(deviation, deviation)
        result = np.divide(cov, scale, out=np.zeros_like(cov), where=scale > 0)
        if name == "spearman":
            result = 2 * np.sin(np.pi / 6 * result)
    np.fill_diagonal(result, 1.0)
    return np.asarray(result)


def _kendall(samples: Array) -> Array:
    """Kendall's τ_b of all pairs of variables, over the pairs of rows that have both."""
    _check_pairs((~np.isnan(samples)).astype(np.float64), 2)
    size = samples.shape[1]
    agreement, square = np.zeros((size, size)), np.zeros((size, size))
    for row in range(len(samples) - 1):
        sign = np.sign(samples[row + 1 :] - samples[row])
        observed = (~np.isnan(sign)).astype(np.float64)
        sign = np.nan_to_num(sign)
        agreement += sign.T @ sign
        square += np.abs(sign).T @ observed
    scale = np.sqrt(square * square.T)
    return np.divide(agreement, scale, out=np.zeros_like(agreement), where=scale > 0)


def partial_correlation(precision: Array) -> Array:
    """Return −Θ_ij/√(Θ_ii Θ_jj) with a unit diagonal (..., D, D), whatever the variables' units.

    :func:`isice.functional.partial_correlation` takes a Θ_ii that is tiny beside the others for a
    dead channel of a network.
    """
    deviation = 1 / np.sqrt(np.diagonal(precision, axis1=-2, axis2=-1))
    result = 0.0 - precision * deviation[..., :, None] * deviation[..., None, :]  # without −0
    np.einsum("...ii->...i", result)[...] = 1.0
    return np.asarray(result)


def nearest_correlation(matrix: Array) -> Array:
    """Clip negative eigenvalues, if any, to zero and rescale to a unit diagonal."""
    values, vectors = np.linalg.eigh(matrix)
    if values[0] >= 0:
        return matrix
    clipped = (vectors * np.maximum(values, 0.0)) @ vectors.T
    deviation = np.sqrt(np.diag(clipped))
    return np.asarray(clipped / np.outer(deviation, deviation))
