"""Improved bilinear CNN: the matrix square root of the second moment, then as B-CNN."""

from torch import Tensor

from .._checks import check_int
from ..ops.frobenius_sqrt import frobenius_sqrt
from ..ops.second_moment import second_moment
from ._registry import register_pooling
from .bilinear import BilinearPooling


@register_pooling
class ImprovedBilinearPooling(BilinearPooling):
    """Improved bilinear pooling: the square root of XXᵀ/n, signed square root, ℓ2 normalisation.

    The root of A = XXᵀ/n is computed by Newton–Schulz on A/‖A‖_F. The output has C² features, as
    published, or C(C+1)/2 with ``upper_triangle``.

    Args:
        n_iter: Newton–Schulz steps; 5 as published.
        upper_triangle: Keep the C(C+1)/2 distinct entries only.
        eps: ε of the signed square root, whose slope is at most 1/(2√ε).

    Example:
        >>> ImprovedBilinearPooling(8)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 64])
    """

    reference = "Lin, Maji: Improved Bilinear Pooling with CNNs, BMVC 2017"
    fidelity = "verified"
    evidence = "cvl-umass/bilinear-cnn and msubhransu/matrix-sqrt; formula in tests/pooling/test_improved_bilinear.py"

    def __init__(self, in_channels: int, *, n_iter: int = 5, upper_triangle: bool = False, eps: float = 1e-5) -> None:
        super().__init__(in_channels, upper_triangle=upper_triangle, eps=eps)
        check_int(self.name, "n_iter", n_iter, minimum=1)
        self.n_iter = n_iter

    def matrix(self, x: Tensor) -> Tensor:
        return frobenius_sqrt(second_moment(x), n_iter=self.n_iter)
