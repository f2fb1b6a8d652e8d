"""Spectrum and sparsity pattern of a matrix, before and after iSICE."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._checks import check_number, check_square
from ..ops.isice import isice


@dataclass(frozen=True)
class Structure:
    """Spectrum and sparsity pattern of one symmetric matrix.

    Attributes:
        matrix: The matrix (D, D).
        eigenvalues: Its eigenvalues (D,), largest first.
        nonzero: Mask of the nonzero entries (D, D).
    """

    matrix: np.ndarray
    eigenvalues: np.ndarray
    nonzero: np.ndarray

    @property
    def density(self) -> float:
        """Fraction of nonzero off-diagonal entries."""
        off_diagonal = ~np.eye(len(self.matrix), dtype=bool)
        return float(self.nonzero[off_diagonal].mean()) if len(self.matrix) > 1 else 0.0


def structure(matrix: Tensor, *, tol: float = 0.0) -> Structure:
    """Return spectrum and sparsity pattern of one symmetric matrix (D, D).

    Entries of absolute value up to ``tol`` count as zero.

    Example:
        >>> facts = structure(torch.diag(torch.tensor([1.0, 3.0])))
        >>> facts.eigenvalues.tolist(), facts.density
        ([3.0, 1.0], 0.0)
    """
    check_square("structure", matrix)
    check_number("structure", "tol", tol)
    if matrix.ndim != 2:
        raise ValueError(f"structure: expected one matrix (D, D), got {tuple(matrix.shape)}; pass them one by one.")
    with torch.no_grad():
        eigenvalues = torch.linalg.eigvalsh(matrix.double()).flip(0)
        return Structure(matrix.cpu().numpy(), eigenvalues.cpu().numpy(), (matrix.abs() > tol).cpu().numpy())


def isice_before_after(cov: Tensor, **options: Any) -> tuple[Structure, Structure]:
    """Return the structure of S before the first and after the last step of Alg. 2, not normalised.

    Args:
        cov: Covariance matrix (D, D).
        **options: Options of :func:`isice.functional.isice`, except ``normalize`` and ``preset``.

    Example:
        >>> before, after = isice_before_after(torch.eye(3), step_size=5.0)
        >>> after.density
        0.0
    """
    taken = {"normalize", "preset"} & set(options)
    if taken:
        raise TypeError(f"isice_before_after: expected options of Alg. 2's steps, got {sorted(taken)}; omit them.")
    with torch.no_grad():
        before = isice(cov, **{**options, "n_iter": 0}, normalize="none")
        after = isice(cov, **options, normalize="none")
    return structure(before), structure(after)
