"""All operations in one namespace: ``import isice.functional as F``.

They run on CPU and CUDA in float32 and float64. Those of features and matrices are batched, and
differentiable unless noted.
"""

import warnings

from torch import Tensor

from .ops.channel_dropout import adaptive_drop_rate, channel_attention, drop_channels, hashed_uniform
from .ops.codebook import assignment_sharpness, diagonal_mixture, fisher_vector, kmeans, soft_assignment, vlad
from .ops.correlation import correlation, partial_correlation
from .ops.covariance import covariance
from .ops.diagnostics import inverse_residual, smallest_eigenvalue, zero_fraction
from .ops.frobenius_sqrt import frobenius_sqrt
from .ops.graphical_lasso import graphical_lasso, graphical_lasso_path, sparsity_max
from .ops.isice import isice
from .ops.isice_modulated import isice_modulated, modulation, modulation_penalty
from .ops.joint_graphical_lasso import joint_graphical_lasso
from .ops.kernel_matrix import gaussian_kernel_matrix, squared_distances
from .ops.latent_graphical_lasso import latent_graphical_lasso
from .ops.newton_schulz import newton_schulz_inverse, newton_schulz_inverse_sqrt, newton_schulz_sqrt
from .ops.projection import kronecker_projection, low_rank_scores, rank_one_update, two_sided_projection
from .ops.regularized_precision import regularized_precision
from .ops.ridge import ridge_inverse, saturate, shrink
from .ops.second_moment import quadratic_forms, second_moment
from .ops.shrinkage import ledoit_wolf, oas, schaefer_strimmer, shrinkage_ridge
from .ops.signed_sqrt import l2_normalize, signed_sqrt
from .ops.sketch import (
    count_sketch,
    kernel_features,
    random_hashes,
    random_maclaurin,
    random_normal,
    random_signs,
    tensor_sketch,
    tensor_sketches,
)
from .ops.spectral import matrix_log, matrix_power
from .ops.vectorize import unvectorize, vectorize

__all__ = [
    "adaptive_drop_rate",
    "assignment_sharpness",
    "channel_attention",
    "correlation",
    "count_sketch",
    "covariance",
    "diagonal_mixture",
    "drop_channels",
    "fisher_vector",
    "frobenius_sqrt",
    "gaussian_kernel_matrix",
    "graphical_lasso",
    "graphical_lasso_path",
    "hashed_uniform",
    "inverse_residual",
    "isice",
    "isice_modulated",
    "joint_graphical_lasso",
    "kernel_features",
    "kmeans",
    "kronecker_projection",
    "l2_normalize",
    "latent_graphical_lasso",
    "ledoit_wolf",
    "low_rank_scores",
    "matrix_log",
    "matrix_power",
    "modulation",
    "modulation_penalty",
    "newton_schulz_inverse",
    "newton_schulz_inverse_sqrt",
    "newton_schulz_sqrt",
    "oas",
    "partial_correlation",
    "quadratic_forms",
    "random_hashes",
    "random_maclaurin",
    "random_normal",
    "random_signs",
    "rank_one_update",
    "regularized_precision",
    "ridge_inverse",
    "saturate",
    "schaefer_strimmer",
    "second_moment",
    "shrink",
    "shrinkage_ridge",
    "signed_sqrt",
    "smallest_eigenvalue",
    "soft_assignment",
    "sparsity_max",
    "squared_distances",
    "tensor_sketch",
    "tensor_sketches",
    "two_sided_projection",
    "unvectorize",
    "vectorize",
    "vlad",
    "zero_fraction",
]


def sparsity(matrix: Tensor, tol: float = 0.0) -> Tensor:
    """Call :func:`zero_fraction`, its new name: elsewhere ``sparsity`` is the penalty λ."""
    warnings.warn(
        "isice.functional.sparsity: renamed to zero_fraction; use zero_fraction(matrix, tol).",
        DeprecationWarning,
        stacklevel=2,
    )
    return zero_fraction(matrix, tol)
