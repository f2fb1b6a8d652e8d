"""The facade of all maths: ``import isice.functional as F``.

Everything is batched, runs on CPU and CUDA in float32 and float64, and is differentiable unless it says otherwise.
"""

from .ops.correlation import correlation, partial_correlation, regularized_precision
from .ops.covariance import covariance
from .ops.diagnostics import inverse_residual, smallest_eigenvalue, sparsity
from .ops.isice import isice
from .ops.isice_modulated import isice_modulated, modulation, modulation_penalty
from .ops.newton_schulz import newton_schulz_inverse, newton_schulz_inverse_sqrt, newton_schulz_sqrt
from .ops.spectral import matrix_log, matrix_power
from .ops.vectorize import unvectorize, vectorize

__all__ = [
    "correlation",
    "covariance",
    "inverse_residual",
    "isice",
    "isice_modulated",
    "matrix_log",
    "matrix_power",
    "modulation",
    "modulation_penalty",
    "newton_schulz_inverse",
    "newton_schulz_inverse_sqrt",
    "newton_schulz_sqrt",
    "partial_correlation",
    "regularized_precision",
    "smallest_eigenvalue",
    "sparsity",
    "unvectorize",
    "vectorize",
]
