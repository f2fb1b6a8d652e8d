"""How well a precision matrix of known structure is estimated (paper, Sec. 4, dense vs sparse structure).

The paper draws samples from a normal distribution with a random dense or sparse precision matrix P. It says neither how
P was drawn nor how λ was chosen; both are choices made here, and ``isice run structure`` shows what depends on them.
"""

from typing import Any

import numpy as np

from ..estimator import SparsePrecision, SparsePrecisionCV
from ..experiments.kinds import StructureConfig


def random_precision(structure: str, size: int, rng: np.random.Generator) -> np.ndarray:
    """A random positive definite matrix (D, D).

    ``"dense"`` is AAᵀ/D of a square matrix A of normal numbers: no entry is zero, and the eigenvalues span several
    orders of magnitude. ``"dense_mild"`` has factors twice as wide and a ridge of 0.1, so that its eigenvalues lie
    roughly between 0.2 and 3. ``"sparse"`` has about two edges per variable and is diagonally dominant.

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
    """Draws P and samples, estimates P, and tells how far off the estimate is.

    Both estimators see the same matrix and samples for one seed.

    Returns:
        ``error``: ‖P̂ − P‖ (Frobenius); ``relative_error``: the same divided by ‖P‖, so that 1 is the error of P̂ = 0;
        ``density``: share of entries beside the diagonal that are not zero; ``sparsity``: the λ in use.
    """
    rng = np.random.default_rng(config.seed)
    precision = random_precision(config.structure, config.size, rng)
    samples = rng.multivariate_normal(np.zeros(config.size), np.linalg.inv(precision), size=config.samples)
    estimate, sparsity = _sparse(config, samples) if config.estimator == "sice" else (_likelihood(samples), None)
    error = float(np.linalg.norm(estimate - precision))
    return {
        "error": error,
        "relative_error": error / float(np.linalg.norm(precision)),
        "density": float((estimate[~np.eye(config.size, dtype=bool)] != 0).mean()),
        "sparsity": sparsity,
    }


def _sparse(config: StructureConfig, samples: np.ndarray) -> tuple[np.ndarray, float]:
    """The sparse estimate and its λ, in the unit of correlations.

    ``"rate"`` is λ = √(log D / n), the rate at which the theory of sparse estimation lets λ fall with the number of
    samples (Rothman et al. 2008; Ravikumar et al. 2011); it takes the truth to be sparse. ``"cv"`` looks at the data.
    """
    if config.selection == "rate":
        sparsity = float(np.sqrt(np.log(config.size) / len(samples)))
        return SparsePrecision(sparsity).fit(samples).precision_, sparsity
    model = SparsePrecisionCV(sparsities=np.geomspace(0.6, 0.006, 8).tolist(), cv=4, tol=1e-4).fit(samples)
    return model.precision_, float(model.sparsity_)


def _likelihood(samples: np.ndarray) -> np.ndarray:
    """The inverse of the sample covariance."""
    count, size = samples.shape
    if count <= size:
        raise ValueError(
            f"structure: expected more than {size} samples for maximum likelihood, got {count}; "
            "the sample covariance has no inverse."
        )
    return np.linalg.inv(np.cov(samples.T, bias=True))
