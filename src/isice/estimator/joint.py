"""Joint graphical lasso as a scikit-learn estimator: one sparse precision matrix per class."""

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.covariance import log_likelihood
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .._checks import check_choice
from ..ops.joint_graphical_lasso import PENALTIES, joint_graphical_lasso
from .covariances import Array, covariance
from .graph import network
from .parameters import SolverParameters, threads

if TYPE_CHECKING:
    import networkx
    from matplotlib.axes import Axes

__all__ = ["JointSparsePrecision"]


@dataclass(eq=False, repr=False)
class JointSparsePrecision(SolverParameters, BaseEstimator):  # type: ignore[misc]
    """Sparse inverse covariances of several classes, estimated together (Danaher et al. 2014).

    The likelihood of a class counts in proportion to its number of samples.

    Args:
        sparsity: λ₁ ≥ 0 on every entry off the diagonal.
        similarity: λ₂ ≥ 0, weight of the penalty that ties the classes together.
        penalty: ``"group"``: classes share which edges exist; ``"fused"``: they also share
            their strengths; ``"time_varying"``: each class resembles the one before it, in the
            order of the sorted labels.
        scale: Unit of both penalties: ``"correlation"`` or ``"raw"``.
        weights: Non-negative, symmetric factors of both penalties per entry (D, D).
        covariance_estimator: As in :class:`SparsePrecision`, without ``"precomputed"``.
        tol: Largest duality gap, as a multiple of the number of classes times D.
        max_iter: Iterations after which a warning reports the gap reached.
        assume_centered: Whether the data have mean zero already.
        device: Where to solve, such as ``"cuda"``.
        n_jobs, verbose: As in :class:`SparsePrecision`.

    Attributes:
        classes_: Labels (K,).
        precision_: Sparse inverse covariances (K, D, D), with exact zeros.
        covariance_: Their inverses (K, D, D).
        partial_correlation_: −Θ_ij/√(Θ_ii Θ_jj), unit diagonal (K, D, D).
        location_: Means (K, D).
        dual_gap_: The objective is at most this far above its minimum.
        n_iter_: Iterations.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x, y = rng.normal(size=(90, 3)), np.repeat(["a", "b", "c"], 30)
        >>> x[:, 1] += x[:, 0]
        >>> model = JointSparsePrecision(0.1, 0.1).fit(x, y)
        >>> (model.precision_ != 0).all(axis=0).astype(int).tolist()
        [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """

    sparsity: float = 0.1
    similarity: float = 0.1
    _: KW_ONLY
    penalty: Literal["group", "fused", "time_varying"] = "group"
    scale: Literal["raw", "correlation"] = "correlation"

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to samples X (N, D) with class labels y (N,); every class needs two samples."""
        self._check_parameters()
        samples, labels = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(labels)
        self.classes_, counts = np.unique(labels, return_counts=True)
        if counts.min() < 2:
            rare = self.classes_[counts.argmin()]
            raise ValueError(f"JointSparsePrecision: expected at least 2 samples per class, got 1 of class '{rare}'.")
        parts = [samples[labels == label] for label in self.classes_]
        for label, part in zip(self.classes_, parts, strict=True):
            self._refuse_constant(self._constant(part, self.covariance_estimator), among=f" in class '{label}'")
        self.location_ = np.stack([0 * x[0] if self.assume_centered else x.mean(axis=0) for x in parts])
        covs = [covariance(x, self.covariance_estimator, assume_centered=self.assume_centered) for x in parts]
        with threads(self.n_jobs):
            result = joint_graphical_lasso(
                torch.as_tensor(np.stack(covs), device=self.device),
                self.sparsity,
                self.similarity,
                penalty=self.penalty,
                class_weights=torch.as_tensor(counts / counts.mean()),
                **self._shared_options(),
            )
        self._store_solution(result, result.precision)
        return self

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Return the mean Gaussian log-likelihood of samples X (N, D), each under its class."""
        check_is_fitted(self, "precision_")
        samples, labels = validate_data(self, X, y, dtype=np.float64, reset=False)
        unknown = sorted(set(labels.tolist()) - set(self.classes_.tolist()))
        if unknown:
            raise ValueError(
                f"JointSparsePrecision: expected labels of the fit, {self.classes_.tolist()}, got {unknown}."
            )
        total = 0.0
        for label, mean, precision in zip(self.classes_, self.location_, self.precision_, strict=True):
            centred: Array = samples[labels == label] - mean
            if len(centred):
                total += len(centred) * log_likelihood(centred.T @ centred / len(centred), precision)
        return float(total / len(samples))

    def to_networkx(self, label: Any) -> "networkx.Graph":
        """Return the graph of a class, as :meth:`SparsePrecision.to_networkx`."""
        place = self._place(label)
        names = getattr(self, "feature_names_in_", None)
        return network(self.precision_[place], self.partial_correlation_[place], names)

    def plot_graph(self, label: Any, **options: Any) -> "Axes":
        """Draw the graph of a class; options of :func:`isice.graph_plots.plot_graph`."""
        from ..graph_plots import plot_graph

        return plot_graph(
            self.partial_correlation_[self._place(label)], **{"labels": self._variable_names(), **options}
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _place(self, label: Any) -> int:
        check_is_fitted(self, "precision_")
        found = np.flatnonzero(self.classes_ == label)
        if not len(found):
            raise ValueError(f"JointSparsePrecision: expected a label of {self.classes_.tolist()}, got {label!r}.")
        return int(found[0])

    def _check_parameters(self) -> None:
        who, source = type(self).__name__, self.covariance_estimator
        check_choice(who, "penalty", self.penalty, PENALTIES)
        self._check_solver(("raw", "correlation"), source, ("sparsity", "similarity"))
        if isinstance(source, str) and source == "precomputed":
            raise ValueError(f"{who}: expected samples; for matrices use isice.functional.joint_graphical_lasso.")
