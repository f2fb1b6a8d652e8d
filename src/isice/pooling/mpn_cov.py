"""MPN-COV: a power of the covariance, by eigendecomposition."""

from torch import Tensor

from .._checks import check_number
from ..ops.spectral import matrix_power
from ._base import SPDPooling
from ._registry import register_pooling


@register_pooling
class MPNCOV(SPDPooling):
    """Matrix power normalized covariance Σ^p, p = ½: the upper triangle, C(C+1)/2 features.

    The authors' code sets eigenvalues at the level of rounding to zero. Here they count as that level, C·ε·λ_max, which
    adds at most √(C·ε) of the largest to the root and keeps gradients finite for repeated and zero eigenvalues.

    Args:
        in_channels: Channels C of the feature map.
        power: The exponent p.

    Example:
        >>> import torch
        >>> MPNCOV(8)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 36])
    """

    reference = "Li, Xie, Wang, Zuo: Is Second-order Information Helpful for Large-scale Visual Recognition?, ICCV 2017"

    def __init__(self, in_channels: int, *, power: float = 0.5) -> None:
        super().__init__(in_channels)
        check_number(type(self).name, "power", power, strict=True)
        self.power = power

    def transform(self, cov: Tensor) -> Tensor:
        return matrix_power(cov, self.power)
