"""Covariances of folds, subsamples and bootstrap samples."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .covariances import Array, constant_variables

KEPT_BYTES = 2**25  # of all covariances together, above which each is computed again at every use


class PartCovariances:
    """Covariances of parts of the samples, indexed like an array (P, D, D).

    A variable that is constant in a part keeps the variance of all samples and is uncorrelated
    there.

    Args:
        compute: Return the covariance of the samples in a part.
        samples: Samples (N, D).
        parts: Indices of the samples in each part.
        cov: Covariance of all samples (D, D).

    Attributes:
        shape: (P, D, D).
        variances: Their diagonals (P, D).
        constant: Which variables are constant in some part, but not in all samples (D,).
    """

    def __init__(self, compute: Callable[[Array], Array], samples: Array, parts: Sequence[Array], cov: Array) -> None:
        self.compute, self.samples, self.parts, self.variance = compute, samples, parts, np.diag(cov).copy()
        self.shape = (len(parts), *cov.shape)
        self.variances, self.constant = np.empty(self.shape[:2]), np.zeros(len(cov), dtype=bool)
        few = len(parts) * cov.nbytes <= KEPT_BYTES
        self.kept = np.empty(self.shape) if few else None
        for place in range(len(parts)):
            part = self._covariance(place)
            self.variances[place] = np.diagonal(part)
            if self.kept is not None:
                self.kept[place] = part

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, places: slice | NDArray[Any]) -> Array:
        if self.kept is not None:
            return self.kept[places]
        wanted, positions = np.unique(np.arange(len(self))[places], return_inverse=True)
        found = np.stack([self._covariance(place) for place in wanted])
        return found if len(found) == len(positions) else found[positions]

    def _covariance(self, place: int) -> Array:
        cov = self.compute(self.parts[place])
        # A shrunk covariance has a variance for constants, too.
        fixed = constant_variables(self.samples[self.parts[place]]) | (np.diagonal(cov) <= 1e-14 * self.variance)
        if fixed.any():
            cov[fixed], cov[:, fixed] = 0.0, 0.0
            cov[fixed, fixed] = self.variance[fixed]
            self.constant |= fixed & (self.variance > 0)
        return cov
