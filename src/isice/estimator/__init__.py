"""Scikit-learn interface of the exact solver: certified sparse precision matrices, choice of λ."""

from .joint import JointSparsePrecision
from .latent import LatentSparsePrecision
from .selection import SparsePrecisionCV
from .sparse_precision import SparsePrecision

__all__ = ["JointSparsePrecision", "LatentSparsePrecision", "SparsePrecision", "SparsePrecisionCV"]
