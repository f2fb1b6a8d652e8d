"""Sparse inverse covariance as a scikit-learn estimator."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.covariance import EmpiricalCovariance, empirical_covariance
from sklearn.utils.validation import validate_data

from .._checks import check_choice, check_int, check_number
from ..ops.correlation import partial_correlation
from ..ops.graphical_lasso import SCALES, GraphicalLassoResult, graphical_lasso

__all__ = ["SparsePrecision"]


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
        return self._store(samples, *(to_numpy(tensor) for tensor in result))

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
        parts = zip(*(to_numpy(tensor) for tensor in result), strict=True)
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


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()
