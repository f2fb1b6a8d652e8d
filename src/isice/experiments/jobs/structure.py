"""Errors of estimates of a known precision matrix (paper, Sec. 4, dense vs sparse structure).

The paper draws samples from a normal distribution with a random dense or sparse precision matrix P.
It says neither how P is drawn nor how λ is chosen. ``isice run structure`` shows how the result
depends on the choices made here.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._checks import check_choice, check_int
from ..job_configs import Job


@dataclass(frozen=True)
class StructureConfig:
    """A matrix, an estimator and a number of samples."""

    structure: str = "sparse"  # kind of matrix, see random_precision
    estimator: str = "sice"  # "sice" (graphical lasso) or "mle" (inverse of the sample covariance)
    selection: str = "rate"  # λ of SICE: "rate", √(log size / samples), or "cv", cross-validation
    size: int = 100  # variables
    samples: int = 200
    seed: int = 0  # of matrix and samples

    def __post_init__(self) -> None:
        check_choice("structure", "structure", self.structure, ("sparse", "dense", "dense_mild"))
        check_choice("structure", "estimator", self.estimator, ("sice", "mle"))
        check_choice("structure", "selection", self.selection, ("rate", "cv"))
        check_int("structure", "size", self.size, minimum=2)
        check_int("structure", "samples", self.samples, minimum=4)


def random_precision(structure: str, size: int, rng: np.random.Generator) -> np.ndarray:
    """Draw a random positive definite matrix (D, D).

    ``"dense"`` is AAᵀ/D of a square Gaussian matrix A: no entry is zero, and the eigenvalues span
    several orders of magnitude. ``"dense_mild"`` has factors twice as wide and a ridge of 0.1, so
    that its eigenvalues lie roughly between 0.2 and 3. ``"sparse"`` has about two edges per
    variable and is diagonally dominant.

    Example:
        >>> matrix = random_precision("sparse", 50, np.random.default_rng(0))
        >>> bool(np.linalg.eigvalsh(matrix)[0] > 0), bool((matrix == 0).mean() > 0.9)
        (True, True)
    """
    if structure != "sparse":
        width, ridge = {"dense": (size, 0.0), "dense_mild": (2 * size, 0.1)}[structure]
        factor = rng.normal(size=(size, width))
        return factor @ factor.T / width + ridge * np.eye(size)
    edges = rng.random((size, size)) < 2 / size
    upper = np.triu(np.where(edges, rng.uniform(-0.8, 0.8, (size, size)), 0.0), 1)
    matrix = upper + upper.T
    return matrix + np.diag(np.abs(matrix).sum(axis=1) + 0.3)


def estimation_error(config: StructureConfig) -> dict[str, Any]:
    """Draw P and samples, estimate P, and measure the error.

    For one seed, all estimators get the same matrix and samples.

    Returns:
        ``error``: ‖P̂ − P‖ (Frobenius); ``relative_error``: the same divided by ‖P‖, so that P̂ = 0
        has error 1; ``density``: share of nonzero off-diagonal entries; ``sparsity``: λ, if any.
    """
    rng = np.random.default_rng(config.seed)
    precision = random_precision(config.structure, config.size, rng)
    samples = rng.multivariate_normal(np.zeros(config.size), np.linalg.inv(precision), size=config.samples)
    estimate, sparsity = (
        _sparse_estimate(config, samples) if config.estimator == "sice" else (_maximum_likelihood(samples), None)
    )
    error = float(np.linalg.norm(estimate - precision))
    return {
        "error": error,
        "relative_error": error / float(np.linalg.norm(precision)),
        "density": float((estimate[~np.eye(config.size, dtype=bool)] != 0).mean()),
        "sparsity": sparsity,
    }


def _sparse_estimate(config: StructureConfig, samples: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the graphical lasso estimate and its λ, on the correlation scale.

    λ = √(log D / n) is the rate at which λ may decrease with the number of samples if the true
    matrix is sparse (Rothman et al. 2008; Ravikumar et al. 2011).
    """
    from ...estimator import SparsePrecision, SparsePrecisionCV

    if config.selection == "rate":
        sparsity = float(np.sqrt(np.log(config.size) / len(samples)))
        return SparsePrecision(sparsity).fit(samples).precision_, sparsity
    model = SparsePrecisionCV(sparsities=np.geomspace(0.6, 0.006, 8).tolist(), cv=4, tol=1e-4).fit(samples)
    return model.precision_, float(model.sparsity_)


def _maximum_likelihood(samples: np.ndarray) -> np.ndarray:
    """Return the inverse of the sample covariance."""
    count, size = samples.shape
    if count <= size:
        raise ValueError(
            f"structure: expected more than {size} samples for maximum likelihood, got {count}; "
            "the sample covariance is singular."
        )
    return np.linalg.inv(np.cov(samples.T, bias=True))


JOB = Job(StructureConfig, compute=estimation_error)
