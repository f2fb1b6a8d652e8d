"""Bilinear CNN: the uncentred second moment, signed square root, ℓ2."""

from torch import Tensor

from .._checks import check_bool, check_number
from ..ops.second_moment import second_moment
from ..ops.signed_sqrt import l2_normalize, signed_sqrt
from ..ops.vectorize import vectorize
from . import Pooling, register_pooling


@register_pooling
class BilinearPooling(Pooling):
    """Bilinear pooling: the uncentred second moment XXᵀ/n, signed square root, ℓ2 normalisation.

    The output has C² features, as published. The matrix is symmetric, so ``upper_triangle`` halves
    the output and only changes the weight of the off-diagonal entries.

    Args:
        upper_triangle: Keep the C(C+1)/2 distinct entries only.
        eps: ε of the signed square root, whose slope is at most 1/(2√ε).

    Example:
        >>> BilinearPooling(8)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 64])
    """

    reference = "Lin, RoyChowdhury, Maji: Bilinear CNN Models for Fine-grained Visual Recognition, ICCV 2015"
    fidelity = "verified"
    evidence = "cvl-umass/bilinear-cnn and HaoMood/bilinear-cnn; formula in tests/pooling/test_bilinear.py"

    def __init__(self, in_channels: int, *, upper_triangle: bool = False, eps: float = 1e-5) -> None:
        super().__init__(in_channels)
        check_bool(self.name, upper_triangle=upper_triangle)
        check_number(self.name, "eps", eps, strict=True)
        self.upper_triangle = upper_triangle
        self.eps = eps
        self.out_features = in_channels * (in_channels + 1) // 2 if upper_triangle else in_channels**2

    def matrix(self, x: Tensor) -> Tensor:
        return second_moment(x)

    def pool(self, x: Tensor) -> Tensor:
        matrix = self.matrix(x)
        vector = vectorize(matrix) if self.upper_triangle else matrix.flatten(1)
        return l2_normalize(signed_sqrt(vector, self.eps))
