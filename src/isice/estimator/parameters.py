"""Parameters that the estimators share: kept as given by the constructor, checked when fitting."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from .._checks import check_bool, check_choice, check_int, check_number
from .covariances import Array, check_covariance_estimator, constant_variables, partial_correlation


@dataclass(eq=False, repr=False, kw_only=True)
class SolverParameters:
    """Base of the estimators, whose constructors only store fields, as scikit-learn wants."""

    scale: str = "correlation"
    weights: ArrayLike | None = None
    covariance_estimator: Any = "empirical"
    tol: float = 1e-6
    max_iter: int = 5000
    assume_centered: bool = False
    device: str = "cpu"
    n_jobs: int | None = None
    verbose: bool = False

    def _check_solver(self, scales: Sequence[str], source: Any, numbers: Sequence[str]) -> None:
        """Check the solver's parameters and the non-negative ``numbers``."""
        who = type(self).__name__
        check_choice(who, "scale", self.scale, scales)
        check_number(who, "tol", self._plain("tol"), strict=True)
        check_int(who, "max_iter", self._plain("max_iter"), minimum=1)
        check_covariance_estimator(who, source)
        if self.weights is not None and np.ndim(self.weights) != 2:
            raise ValueError(
                f"{who}: expected weights (D, D), one factor per entry, got shape {np.shape(self.weights)}; pass "
                "one matrix for all folds or classes."
            )
        n_jobs = self._plain("n_jobs")
        if n_jobs is not None and (not isinstance(n_jobs, int) or n_jobs == 0):
            raise ValueError(
                f"{who}: expected n_jobs as None, a number of threads or −1 for all cores, got {n_jobs!r}."
            )
        check_bool(who, assume_centered=self._plain("assume_centered"))
        for name in numbers:
            value = getattr(self, name)
            if np.ndim(value):
                raise TypeError(
                    f"{who}: expected {name} to be one number, got an array of shape {np.shape(value)}; "
                    "pass a penalty per entry as weights=."
                )
            check_number(who, name, self._plain(name))

    def _checked_precomputed(self, matrix: Array) -> Array:
        """Return a copy of a covariance matrix; raise unless it is square."""
        if matrix.shape[0] != matrix.shape[1]:
            raise ValueError(
                f"{type(self).__name__}: expected a precomputed covariance matrix (D, D), got shape {matrix.shape}."
            )
        return matrix.copy()

    def _refuse_constant(self, constant: NDArray[np.bool_], *, among: str = "", advice: str = "") -> None:
        """Raise, with names, if there are variables without variance."""
        if constant.any():
            names = ", ".join(self._variable_names()[i] for i in np.flatnonzero(constant))
            raise ValueError(
                f"{type(self).__name__}: expected variables that vary{among}, got constant values of {names}; drop "
                f"constant variables{advice}."
            )

    def _variable_names(self) -> list[str]:
        """Names of the columns of X, or their numbers."""
        count: int = self.n_features_in_  # type: ignore[attr-defined]
        return [str(name) for name in getattr(self, "feature_names_in_", range(count))]

    def _constant(self, samples: Array, source: Any) -> NDArray[np.bool_]:
        """Which variables have no variance in the samples (D,)."""
        about_zero = self.assume_centered and isinstance(source, str) and source == "empirical"
        return constant_variables(samples, assume_centered=about_zero)

    def _plain(self, name: str) -> Any:
        return plain(getattr(self, name))

    def _shared_options(self) -> dict[str, Any]:
        """Return the options that all solvers have."""
        weights = None
        if self.weights is not None:
            weights = torch.as_tensor(np.array(self.weights, np.float64), device=self.device)
        return {"weights": weights, "scale": self.scale, "tol": float(self.tol), "max_iter": int(self.max_iter)}

    def _store_solution(self, result: Any, graph: Tensor) -> None:
        """Set the attributes that a solver's result gives; ``graph`` is the sparse matrix."""
        self.precision_, self.covariance_ = to_numpy(result.precision), to_numpy(result.covariance)
        self.partial_correlation_ = partial_correlation(to_numpy(graph))
        self.dual_gap_, self.n_iter_ = float(result.gap), int(result.n_iter)
        self._report(f"{np.count_nonzero(np.triu(self.partial_correlation_, 1))} edges")

    def _report(self, what: str) -> None:
        if self.verbose:
            print(f"{type(self).__name__}: {what}, {self.n_iter_} iterations, duality gap {self.dual_gap_:.3g}")


@contextlib.contextmanager
def threads(n_jobs: int | None) -> Iterator[None]:
    """Limit torch to ``n_jobs`` CPU threads, −1 for all cores, −2 for all but one."""
    before, cores = torch.get_num_threads(), torch.multiprocessing.cpu_count()
    if n_jobs is not None:
        torch.set_num_threads(min(cores, n_jobs) if n_jobs > 0 else max(1, cores + 1 + n_jobs))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def plain(value: Any) -> Any:
    """Return a numpy scalar as a Python number, other values as they are."""
    return value.item() if isinstance(value, np.generic) else value


def to_numpy(tensor: Tensor) -> Array:
    """Copy a tensor to a numpy array."""
    return np.asarray(tensor.detach().cpu().numpy())
