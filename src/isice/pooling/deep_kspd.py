"""DeepKSPD: the matrix logarithm of a kernel matrix over the channels."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from .._checks import check_number
from ..ops._linalg import add_diagonal
from ..ops.kernel_matrix import gaussian_kernel_matrix, squared_distances
from ..ops.spectral import matrix_log
from ..ops.vectorize import vectorize
from . import Pooling, register_pooling


@register_pooling
class DeepKSPD(Pooling):
    """DeepKSPD: logarithm of the kernel matrix K_ij = exp(−θ‖f_i − f_j‖²/n) of the channels.

    θ = softplus(``raw_theta``) is trained.

    Args:
        theta: Initial θ; None for the reciprocal of the mean squared distance between channels of
            training features (:func:`isice.initialize`), and 1 until then.
        eps: Ridge ε of K + εI; equal channels make K singular.

    Example:
        >>> DeepKSPD(8)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 36])
    """

    reference = "Engin, Wang, Zhou, Liu: DeepKSPD: Learning Kernel-matrix-based SPD Representation, ECCV 2018"
    fidelity = "reconstructed"
    evidence = "abstract and introduction of the paper; no public code"
    assumed = (
        "squared distances divided by n; θ = softplus, at the start the reciprocal of the mean squared distance; "
        "matrix logarithm; ε = 1e-3"
    )

    def __init__(self, in_channels: int, *, theta: float | None = None, eps: float = 1e-3) -> None:
        super().__init__(in_channels)
        if theta is not None:
            check_number(self.name, "theta", theta, strict=True)
        check_number(self.name, "eps", eps, strict=True)
        self.theta, self.eps = theta, eps
        self.out_features = in_channels * (in_channels + 1) // 2
        self.raw_theta = nn.Parameter(torch.tensor(_softplus_inverse(1.0 if theta is None else theta)))

    @property
    def wants_data(self) -> bool:
        return self.theta is None

    @torch.no_grad()
    def init_from(self, x: Tensor) -> None:
        """Set θ from features (B, C, H, W): the mean of θ·distance² over channel pairs is one."""
        if self.theta is not None:
            return
        off_diagonal = self.in_channels * max(self.in_channels - 1, 1)
        mean = squared_distances(x).sum(dim=(-2, -1)).mean().item() / off_diagonal
        self.raw_theta.fill_(_softplus_inverse(1 / max(mean, 1e-6)))

    def matrix(self, x: Tensor) -> Tensor:
        kernel = gaussian_kernel_matrix(x, functional.softplus(self.raw_theta.to(x.dtype)))
        return matrix_log(add_diagonal(kernel, self.eps))

    def pool(self, x: Tensor) -> Tensor:
        return vectorize(self.matrix(x))


def _softplus_inverse(value: float) -> float:
    return value + math.log(-math.expm1(-value))
