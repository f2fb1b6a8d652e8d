"""How well a precision matrix of known structure is estimated (paper, Sec. 4, dense vs sparse structure).

The paper draws samples from a normal distribution with a random dense or sparse precision matrix. It does not say how
the matrix was drawn nor how λ was chosen. Here the dense one is Wishart-like, the sparse one has about two edges per
variable and is diagonally dominant, and λ is chosen by cross-validation.
"""

from typing import Any

import numpy as np

from ..estimator import SparsePrecisionCV
from ..experiments.kinds import StructureConfig


def random_precision(structure: str, size: int, rng: np.random.Generator) -> np.ndarray:
    """A positive definite matrix (D, D) without zeros (``"dense"``) or with mostly zeros (``"sparse"``).

    Example:
        >>> matrix = random_precision("sparse", 50, np.random.default_rng(0))
        >>> bool(np.linalg.eigvalsh(matrix)[0] > 0), bool((matrix == 0).mean() > 0.9)
        (True, True)
    """
    if structure == "dense":
        factor = rng.normal(size=(size, 2 * size))
        return factor @ factor.T / (2 * size) + 0.1 * np.eye(size)
    edges = rng.random((size, size)) < 2 / size
    upper = np.triu(np.where(edges, rng.uniform(-0.8, 0.8, (size, size)), 0.0), 1)
    matrix = upper + upper.T
    return matrix + np.diag(np.abs(matrix).sum(axis=1) + 0.3)


def estimation_error(config: StructureConfig) -> dict[str, Any]:
    """``error``: ‖P̂ − P‖ (Frobenius); ``relative_error``: the same divided by ‖P‖; ``sparsity``: the λ chosen.

    Both estimators see the same matrix and samples for one seed.
    """
    rng = np.random.default_rng(config.seed)
    precision = random_precision(config.structure, config.size, rng)
    samples = rng.multivariate_normal(np.zeros(config.size), np.linalg.inv(precision), size=config.samples)
    sparsity = None
    if config.estimator == "sice":
        grid = np.geomspace(0.6, 0.006, 8).tolist()
        model = SparsePrecisionCV(sparsities=grid, cv=4, tol=1e-4).fit(samples)
        estimate, sparsity = model.precision_, float(model.sparsity_)
    elif config.samples > config.size:
        estimate = np.linalg.inv(np.cov(samples.T, bias=True))
    else:
        raise ValueError(
            f"structure: expected more than {config.size} samples for maximum likelihood, got {config.samples}; "
            "the sample covariance has no inverse."
        )
    error = float(np.linalg.norm(estimate - precision))
    return {"error": error, "relative_error": error / float(np.linalg.norm(precision)), "sparsity": sparsity}
