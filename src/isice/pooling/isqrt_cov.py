"""iSQRT-COV: the matrix square root of the covariance by Newton–Schulz iteration."""

from torch import Tensor

from .._checks import check_int
from ..ops.covariance import covariance
from ..ops.newton_schulz import newton_schulz_sqrt
from ._base import SPDPooling
from ._registry import register_pooling


@register_pooling
class ISQRTCov(SPDPooling):
    """√(tr Σ)·Y_N, the square root of the covariance after N Newton–Schulz steps; D(D+1)/2 numbers.

    Args:
        in_channels: Channels D of the feature map.
        n_iter: Newton–Schulz steps N.

    Example:
        >>> import torch
        >>> ISQRTCov(8)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 36])
    """

    reference = "Li, Xie, Wang, Gao: Towards Faster Training of Global Covariance Pooling Networks, CVPR 2018"

    def __init__(self, in_channels: int, *, n_iter: int = 5) -> None:
        super().__init__(in_channels)
        check_int(self.name, "n_iter", n_iter, minimum=1)
        self.n_iter = n_iter

    def transform(self, cov: Tensor) -> Tensor:
        return newton_schulz_sqrt(cov, self.n_iter)

    def pool(self, x: Tensor) -> Tensor:
        return newton_schulz_sqrt(covariance(x), self.n_iter, vectorized=True)
