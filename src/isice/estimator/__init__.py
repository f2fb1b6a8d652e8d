"""Scikit-learn interface of the exact solver: sparse precision matrices with a certificate, and the choice of λ."""

from .selection import SparsePrecisionCV
from .sparse_precision import SparsePrecision

__all__ = ["SparsePrecision", "SparsePrecisionCV"]
