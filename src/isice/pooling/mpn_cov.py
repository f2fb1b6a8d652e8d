"""MPN-COV: a power of the covariance, by eigendecomposition."""

from torch import Tensor

from .._checks import check_number
from ..ops.spectral import matrix_power
from . import SPDPooling, register_pooling


@register_pooling
class MPNCOV(SPDPooling):
    """MPN-COV: matrix power normalised covariance Σ^p by eigendecomposition.

    The authors' code sets eigenvalues below rounding error to zero. Here they are clamped to
    C·ε·λ_max, which keeps gradients finite for repeated and zero eigenvalues.

    Args:
        power: Exponent p.

    Example:
        >>> MPNCOV(8)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 36])
    """

    reference = "Li, Xie, Wang, Zuo: Is Second-order Information Helpful for Large-scale Visual Recognition?, ICCV 2017"
    fidelity = "verified"
    evidence = "jiangtaoxie/MPN-COV (EIG.m, mpn_cov_cpu.cpp); formula in tests/pooling/test_mpn_cov.py"

    def __init__(self, in_channels: int, *, power: float = 0.5) -> None:
        super().__init__(in_channels)
        check_number(self.name, "power", power, strict=True)
        self.power = power

    def transform(self, cov: Tensor) -> Tensor:
        return matrix_power(cov, self.power)
