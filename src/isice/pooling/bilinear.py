"""Bilinear CNN: the uncentred second moment, signed square root, ℓ2."""

from torch import Tensor

from ..ops.second_moment import second_moment
from ..ops.signed_sqrt import l2_normalize, signed_sqrt
from ..ops.vectorize import vectorize
from ._base import Pooling
from ._registry import register_pooling


@register_pooling
class BilinearPooling(Pooling):
    """B-CNN: B = XXᵀ/n, not centred; then vec, signed square root and ℓ2.

    The output has C² features, as published. B is symmetric, so ``upper_triangle`` loses nothing but the double weight
    of the off-diagonal entries and halves the classifier.

    Args:
        in_channels: Channels C of the feature map.
        upper_triangle: Keep C(C+1)/2 features, each entry once.
        eps: Bounds the slope of the signed square root at zero.

    Example:
        >>> import torch
        >>> BilinearPooling(8)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 64])
    """

    reference = "Lin, RoyChowdhury, Maji: Bilinear CNN Models for Fine-grained Visual Recognition, ICCV 2015"

    def __init__(self, in_channels: int, *, upper_triangle: bool = False, eps: float = 1e-5) -> None:
        super().__init__(in_channels)
        self.upper_triangle = upper_triangle
        self.eps = eps
        self.out_features = in_channels * (in_channels + 1) // 2 if upper_triangle else in_channels**2

    def matrix(self, x: Tensor) -> Tensor:
        """The symmetric matrix (B, C, C) that :meth:`pool` vectorizes."""
        return second_moment(x)

    def pool(self, x: Tensor) -> Tensor:
        matrix = self.matrix(x)
        vector = vectorize(matrix) if self.upper_triangle else matrix.flatten(1)
        return l2_normalize(signed_sqrt(vector, self.eps))
