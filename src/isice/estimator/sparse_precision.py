"""Sparse inverse covariance as a scikit-learn estimator."""

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.covariance import EmpiricalCovariance, log_likelihood
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from .._checks import check_bool, check_choice
from ..ops.graphical_lasso import SCALES, GraphicalLassoResult, graphical_lasso
from .covariances import Array, covariance, effective_samples, location, partial_correlation
from .graph import GraphMixin
from .inference import InferenceMixin
from .parameters import SolverParameters, threads, to_numpy
from .parts import PartCovariances
from .refit import refit_on_support
from .reweighting import REWEIGHTINGS

__all__ = ["SparsePrecision"]

REWEIGHTING_STEPS = 3
LEAST_WEIGHT = 0.01  # an edge without penalty may have no maximum likelihood if there are few samples


@dataclass(eq=False, repr=False)
class SparsePrecision(SolverParameters, GraphMixin, InferenceMixin, EmpiricalCovariance):  # type: ignore[misc]
    """Sparse inverse covariance of samples (N, D), solved to a certified duality gap.

    Args:
        sparsity: λ ≥ 0.
        scale: Unit of λ: ``"correlation"``, as if the variables had unit variance, so that λ ≥ 1
            always gives a diagonal matrix; ``"raw"`` for scikit-learn's ``alpha``; ``"trace"``.
        penalize_diagonal: Whether the diagonal is penalized too.
        weights: Non-negative, symmetric factors of the penalty per entry (D, D).
        covariance_estimator: ``"empirical"``; ``"spearman"``, ``"kendall"`` or
            ``"nonparanormal"``, the correlation of a Gaussian copula from ranks with the standard
            deviations of the data; a scikit-learn estimator such as ``LedoitWolf()``;
            ``"precomputed"``: X is a covariance matrix.
        missing: ``"raise"``, or ``"pairwise"`` to correlate each pair over the samples that have
            both. Like rank correlations, it is projected to a positive semi-definite matrix.
        reweight: ``"adaptive"`` (adaptive lasso), ``"scad"`` or ``"mcp"``: three further solves
            with weights from the solution before, the local linear approximation of a penalty that
            biases strong edges less. The weights are at least 0.01.
        threshold: Remove edges whose partial correlation is at most this large.
        refit: ``"support"``: maximum likelihood on the edges found, without penalty.
        tol: Largest duality gap, as a multiple of D.
        max_iter: Iterations after which a warning reports the gap reached.
        assume_centered: Whether the data have mean zero already; a scikit-learn estimator has an
            option of its own.
        device: Where to solve, such as ``"cuda"``.
        n_jobs: CPU threads of the solver, −1 for all cores; None leaves torch's setting.
        verbose: Whether to print the progress.
        alpha: scikit-learn's name: the same as ``sparsity=alpha, scale="raw"``.
        covariance: scikit-learn's name of ``covariance_estimator``.

    Attributes:
        sparsity_: The λ of this fit.
        precision_: Sparse inverse covariance (D, D), with exact zeros.
        covariance_: Its inverse (D, D).
        partial_correlation_: −Θ_ij/√(Θ_ii Θ_jj), unit diagonal (D, D).
        dual_gap_: The objective is at most this far above its minimum; of the last problem solved.
        costs_: Objective and duality gap of the penalized problem at its solution, one pair, before
            ``threshold`` and ``refit``; not with ``reweight``.
        n_iter_: Iterations.
        location_: Mean (D,), whatever ``covariance_estimator``.
        sample_covariance_: The matrix S that was solved for (D, D).
        n_samples_: Number of samples, with weights Kish's effective number; None
            for a precomputed matrix.
        n_features_in_, feature_names_in_: As in scikit-learn.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(200, 4))
        >>> model = SparsePrecision(sparsity=0.5).fit(x)
        >>> int(np.count_nonzero(model.precision_))
        4
    """

    store_precision = True
    _synonyms = (("sparsity", "alpha"), ("covariance_estimator", "covariance"))  # ours, scikit-learn's

    sparsity: float = 0.1
    _: KW_ONLY
    scale: Literal["raw", "correlation", "trace"] = "correlation"
    penalize_diagonal: bool = False
    missing: Literal["raise", "pairwise"] = "raise"
    reweight: Literal["adaptive", "scad", "mcp"] | None = None
    threshold: float = 0.0
    refit: Literal["support"] | None = None
    alpha: float | None = None
    covariance: Any = None

    def fit(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to samples X (N, D), optionally weighted (N,); ``y`` is ignored."""
        samples, weight = self._validated(X, sample_weight)
        sparsity = self.sparsity if self.alpha is None else self.alpha
        cov = self._covariance(samples, weight)
        result = self._solve(cov, sparsity)
        return self._store(samples, weight, cov, sparsity, *(to_numpy(tensor) for tensor in result))

    def score(self, X_test: ArrayLike, y: Any = None) -> float:
        """Return the mean Gaussian log-likelihood of samples (N, D) about the fitted mean."""
        check_is_fitted(self, "precision_")
        finite = "allow-nan" if self.missing == "pairwise" else True
        samples = validate_data(self, X_test, dtype=np.float64, reset=False, ensure_all_finite=finite)
        cov = covariance(samples - self.location_, "empirical", assume_centered=True)
        return float(log_likelihood(cov, self.precision_))

    def fit_batch(self, subjects: Sequence[ArrayLike]) -> list[Self]:
        """Fit one estimator per subject, as one batch; their numbers of samples may differ.

        Example:
            >>> rng = np.random.default_rng(0)
            >>> subjects = [rng.normal(size=(n, 5)) for n in (30, 40, 50)]
            >>> models = SparsePrecision().fit_batch(subjects)
            >>> [model.precision_.shape for model in models]
            [(5, 5), (5, 5), (5, 5)]
        """
        models = [clone(self) for _ in subjects]
        samples = [model._validated(x)[0] for model, x in zip(models, subjects, strict=True)]
        sizes = {x.shape[1] for x in samples}
        if len(sizes) != 1:
            raise ValueError(
                f"SparsePrecision: expected subjects with the same number of variables, got {sorted(sizes) or 'none'}."
            )
        sparsity = self.sparsity if self.alpha is None else self.alpha
        covs = np.stack([self._covariance(x) for x in samples])
        parts = zip(*(to_numpy(tensor) for tensor in self._solve(covs, sparsity)), strict=True)
        together = zip(models, samples, covs, parts, strict=True)
        return [model._store(x, None, cov, sparsity, *part) for model, x, cov, part in together]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "pairwise"
        return tags

    def _at_fitted_sparsity(self) -> "SparsePrecision":
        """Return an unfitted estimator with the same options and the λ of this fit."""
        check_is_fitted(self, "sparsity_")
        options = self.get_params(deep=False)
        shared = {name: options[name] for name in SparsePrecision().get_params(deep=False) if name in options}
        return SparsePrecision(**{**shared, "sparsity": self.sparsity_, "scale": self._unit, "alpha": None})

    @property
    def _unit(self) -> str:
        return self.scale if self.alpha is None else "raw"

    @property
    def _source(self) -> Any:
        return self.covariance_estimator if self.covariance is None else self.covariance

    def _validated(self, X: ArrayLike, sample_weight: ArrayLike | None = None) -> tuple[Array, Array | None]:
        """Return the samples as float64, or the precomputed matrix, and the sample weights."""
        who = type(self).__name__
        self._check_parameters()
        finite = "allow-nan" if self.missing == "pairwise" else True
        precomputed = isinstance(self._source, str) and self._source == "precomputed"
        try:
            samples = validate_data(
                self, X, dtype=np.float64, ensure_min_samples=1 if precomputed else 2, ensure_all_finite=finite
            )
        except ValueError as error:
            if finite is True and "contains NaN" in str(error):
                raise ValueError(f"{who}: expected X without NaN; pass missing='pairwise' or impute.") from error
            raise
        if precomputed:
            samples = self._checked_precomputed(samples)
        weight = None
        if sample_weight is not None:
            if self._source != "empirical":
                raise ValueError(
                    f"{who}: expected no sample_weight with covariance_estimator={self._source!r}; use 'empirical'."
                )
            weight = _check_sample_weight(sample_weight, samples, dtype=np.float64, ensure_non_negative=True)
            weight = weight / weight.max()  # whose squares neither overflow nor vanish
        if not self.penalize_diagonal or self._unit == "correlation":
            counted = samples if weight is None else samples[weight > 0]
            constant = np.diag(samples) <= 0 if precomputed else self._constant(counted, self._source)
            self._refuse_constant(constant, advice=", or penalize the diagonal, with scale='raw' or 'trace'")
        return samples, weight

    def _check_parameters(self) -> None:
        who = type(self).__name__
        penalty = "alpha" if getattr(self, "alpha", None) is not None else "sparsity"
        self._check_solver(SCALES, self._source, ("threshold", penalty))
        check_bool(who, penalize_diagonal=self._plain("penalize_diagonal"))
        for ours, theirs in self._synonyms:
            if getattr(self, theirs) is not None and not np.array_equal(getattr(self, ours), getattr(type(self), ours)):
                raise ValueError(f"{who}: expected {ours} or {theirs}, got both, which are names of one option.")
        if self._unit != self.scale and self.scale != type(self).scale:
            ours, theirs = self._synonyms[0]
            raise ValueError(f"{who}: expected scale='raw' with {theirs}, got {self.scale!r}; pass {ours} instead.")
        check_choice(who, "missing", self.missing, ("raise", "pairwise"))
        if self.refit is not None:
            check_choice(who, "refit", self.refit, ("support",))
        if self.reweight is not None:
            check_choice(who, "reweight", self.reweight, REWEIGHTINGS)

    def _covariance(self, samples: Array, sample_weight: Array | None = None) -> Array:
        if isinstance(self._source, str) and self._source == "precomputed":
            return samples
        return covariance(samples, self._source, sample_weight=sample_weight, assume_centered=self.assume_centered)

    def _part_covariances(
        self, samples: Array, weight: Array | None, parts: Sequence[Array], cov: Array
    ) -> PartCovariances:
        """Return covariances of parts of the samples; warn of variables constant in some."""

        def compute(part: Array) -> Array:
            return self._covariance(samples[part], None if weight is None else weight[part])

        covs = PartCovariances(compute, samples, parts, cov)
        if covs.constant.any():
            names = ", ".join(self._variable_names()[i] for i in np.flatnonzero(covs.constant))
            warnings.warn(
                f"{type(self).__name__}: constant in some fold or subsample, and treated as uncorrelated there: "
                f"{names}; drop such variables, or use fewer or stratified folds.",
                UserWarning,
                stacklevel=3,
            )
        return covs

    def _solve(self, cov: Array, sparsity: Any) -> GraphicalLassoResult:
        """Solve a batch (..., D, D) for λ (...), reweighting included."""
        matrix = torch.as_tensor(np.require(cov, requirements="W"), dtype=torch.float64, device=self.device)
        lam = torch.as_tensor(sparsity, dtype=torch.float64, device=self.device)
        options = self._solver_options()
        given = options["weights"]
        with threads(self.n_jobs):
            result = graphical_lasso(matrix, lam, **options)
            if self.reweight is None:
                return result
            for _ in range(REWEIGHTING_STEPS):
                magnitude = result.precision.abs() * self._units(matrix)
                weights = REWEIGHTINGS[self.reweight](magnitude, lam[..., None, None]).nan_to_num_(1.0)  # of λ = 0
                weights.clamp_(min=LEAST_WEIGHT)
                options["weights"] = weights if given is None else weights * given
                result = graphical_lasso(matrix, lam, init=result, **options)
        return result

    def _solver_options(self) -> dict[str, Any]:
        """Return the options of :func:`graphical_lasso`."""
        return self._shared_options() | {"scale": self._unit, "penalize_diagonal": bool(self.penalize_diagonal)}

    def _units(self, cov: Tensor) -> Tensor:
        """Return the unit of the penalty per entry, (..., D, D) or (..., 1, 1)."""
        variance = cov.diagonal(dim1=-2, dim2=-1)
        if self._unit == "correlation":
            return (variance.unsqueeze(-1) * variance.unsqueeze(-2)).sqrt()
        return torch.ones_like(cov) if self._unit == "raw" else variance.sum(-1)[..., None, None]

    def _store(
        self,
        samples: Array,
        weight: Array | None,
        cov: Array,
        sparsity: float,
        precision: Array,
        covariance_: Array,
        gap: Array,
        n_iter: Array,
        *_: Array,
    ) -> Self:
        precomputed = isinstance(self._source, str) and self._source == "precomputed"
        self.location_ = np.zeros(len(cov)) if precomputed else location(samples, weight, self.assume_centered)
        self.n_samples_ = None if precomputed else effective_samples(samples, weight)
        self._has_missing = not precomputed and bool(np.isnan(samples).any())
        self.sample_covariance_, self.sparsity_ = cov, float(sparsity)
        if self.reweight is None:
            self.costs_ = [(self._objective(cov, sparsity, precision), float(gap))]
        else:
            self.__dict__.pop("costs_", None)  # of an earlier fit
        self.precision_, self.covariance_ = precision, covariance_
        self.dual_gap_, self.n_iter_ = float(gap), int(n_iter)
        self._remove_and_refit()
        self.partial_correlation_ = partial_correlation(self.precision_)
        self._report(f"λ = {sparsity:.4g}")
        return self

    def _objective(self, cov: Array, sparsity: float, precision: Array) -> float:
        factor = np.ones_like(cov) if self.weights is None else np.array(self.weights, np.float64)
        if not self.penalize_diagonal:
            factor = factor * ~np.eye(len(cov), dtype=bool)
        penalty = sparsity * factor * to_numpy(self._units(torch.as_tensor(cov)))
        fit = (cov * precision).sum() - np.linalg.slogdet(precision)[1]
        return float(fit + (penalty * np.abs(precision)).sum())

    def _remove_and_refit(self) -> None:
        """Apply ``threshold`` and ``refit`` to the solution."""
        if self.threshold > 0:
            weak = np.abs(partial_correlation(self.precision_)) <= self.threshold
            np.fill_diagonal(weak, False)
            self.precision_ = np.where(weak, 0.0, self.precision_)
        if self.refit is not None:
            self._refit_on_support()
        elif self.threshold > 0:
            # With a unit diagonal the precision is 2I minus the partial correlations.
            if np.linalg.eigvalsh(partial_correlation(self.precision_))[-1] >= 2:
                raise ValueError(
                    f"{type(self).__name__}: expected a positive definite matrix after threshold={self.threshold}, "
                    "got an indefinite one; lower the threshold or pass refit='support'."
                )
            self.covariance_ = np.asarray(np.linalg.inv(self.precision_), dtype=np.float64)

    def _refit_on_support(self) -> None:
        cov, start = (torch.as_tensor(m, device=self.device) for m in (self.sample_covariance_, self.precision_))
        result = refit_on_support(cov, start, tol=float(self.tol))
        if not result.gap <= self.tol * len(cov):
            raise ValueError(
                f"{type(self).__name__}: expected a graph on which the likelihood has a maximum, got one that is too "
                "dense for the samples; raise the sparsity or leave refit=None."
            )
        self.precision_, self.covariance_ = to_numpy(result.precision), to_numpy(result.covariance)
        self.dual_gap_, self.n_iter_ = result.gap, self.n_iter_ + result.n_iter
