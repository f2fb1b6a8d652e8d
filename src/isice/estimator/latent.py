"""Latent-variable graphical lasso as a scikit-learn estimator."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.covariance import EmpiricalCovariance
from sklearn.utils.validation import validate_data

from .._checks import check_number
from ..ops.latent_graphical_lasso import latent_graphical_lasso
from .covariances import covariance, location
from .graph import GraphMixin
from .parameters import SolverParameters, threads, to_numpy

__all__ = ["LatentSparsePrecision"]

RANK_TOLERANCE = 1e-6  # eigenvalues of L below this share of the largest of Θ count as zero


@dataclass(eq=False, repr=False)
class LatentSparsePrecision(SolverParameters, GraphMixin, EmpiricalCovariance):  # type: ignore[misc]
    """Sparse minus low-rank inverse covariance of samples (N, D), for hidden common causes.

    Args:
        sparsity: λ ≥ 0 on the entries of the sparse part off the diagonal.
        trace_penalty: μ > 0 on the trace of the low-rank part. Chandrasekaran et al. (2012) keep
            μ/λ fixed, between 2 and √D or so, and vary λ.
        scale: Unit of both: ``"correlation"`` or ``"raw"``.
        weights: Non-negative, symmetric factors of λ per entry (D, D).
        covariance_estimator: As in :class:`SparsePrecision`.
        tol: Largest duality gap, as a multiple of D.
        max_iter: Iterations after which a warning reports the gap reached.
        assume_centered: Whether the data have mean zero already.
        device: Where to solve, such as ``"cuda"``.
        n_jobs, verbose: As in :class:`SparsePrecision`.

    Attributes:
        precision_: Inverse covariance of the observed variables (D, D), sparse minus low-rank.
        covariance_: Its inverse (D, D).
        sparse_: Precision given the hidden variables (D, D), with exact zeros: the graph.
        low_rank_: What the hidden variables add (D, D), positive semi-definite.
        rank_: Rank of the low-rank part, an estimate of the number of hidden variables.
        partial_correlation_: Partial correlations given the hidden variables too (D, D).
        dual_gap_: The objective is at most this far above its minimum.
        n_iter_: Iterations.
        location_: Mean (D,).

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(500, 6)) + 2 * rng.normal(size=(500, 1))
        >>> model = LatentSparsePrecision(0.1, 0.3).fit(x)
        >>> model.rank_, int(np.count_nonzero(model.sparse_))
        (1, 6)
    """

    store_precision = True

    sparsity: float = 0.1
    trace_penalty: float = 0.3
    _: KW_ONLY
    scale: Literal["raw", "correlation"] = "correlation"

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Fit to samples X (N, D), or to a precomputed covariance (D, D); ``y`` is ignored."""
        self._check_solver(("raw", "correlation"), self.covariance_estimator, ("sparsity", "trace_penalty"))
        check_number(type(self).__name__, "trace_penalty", self._plain("trace_penalty"), strict=True)
        precomputed = isinstance(self.covariance_estimator, str) and self.covariance_estimator == "precomputed"
        samples = validate_data(self, X, dtype=np.float64, ensure_min_samples=1 if precomputed else 2)
        if precomputed:
            samples = self._checked_precomputed(samples)
        constant = np.diag(samples) <= 0 if precomputed else self._constant(samples, self.covariance_estimator)
        self._refuse_constant(constant)
        if precomputed:
            cov, self.location_ = samples, np.zeros(samples.shape[1])
        else:
            cov = covariance(samples, self.covariance_estimator, assume_centered=self.assume_centered)
            self.location_ = location(samples, None, self.assume_centered)
        with threads(self.n_jobs):
            result = latent_graphical_lasso(
                torch.as_tensor(cov, device=self.device), self.sparsity, self.trace_penalty, **self._shared_options()
            )
        self._store_solution(result, result.sparse)
        self.sparse_, self.low_rank_ = to_numpy(result.sparse), to_numpy(result.low_rank)
        deviation = np.sqrt(np.diag(cov))  # a rank should not depend on units
        hidden = self.low_rank_ * np.outer(deviation, deviation)
        self.rank_ = int((np.linalg.eigvalsh(hidden) > RANK_TOLERANCE * np.trace(hidden)).sum()) if hidden.any() else 0
        return self
