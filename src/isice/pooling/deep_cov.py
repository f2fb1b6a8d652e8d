"""DeepCOV: a matrix function of the covariance with the Daleckiĭ–Kreĭn gradient."""

from torch import Tensor

from .._checks import check_choice, check_number
from ..ops._linalg import add_diagonal
from ..ops.spectral import matrix_log, matrix_power
from . import SPDPooling, register_pooling


@register_pooling
class DeepCOV(SPDPooling):
    """DeepCOV: a matrix function f(Σ + εI) of the covariance, a power or the logarithm.

    Args:
        function: ``"power"`` or ``"log"``.
        power: Exponent for ``function="power"``.
        eps: Ridge ε, needed for the logarithm of a singular Σ.

    Example:
        >>> DeepCOV(8, function="log")(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 36])
    """

    reference = "Engin, Wang, Zhou, Liu: DeepKSPD: Learning Kernel-matrix-based SPD Representation, ECCV 2018 (DeepCOV)"
    fidelity = "reconstructed"
    evidence = "the abstracts of both versions of the paper; no public code"
    assumed = (
        "matrix power ½ by default, so that it equals mpn_cov up to ε; centred covariance; ε = 1e-5; no normalization "
        "after the function"
    )

    def __init__(self, in_channels: int, *, function: str = "power", power: float = 0.5, eps: float = 1e-5) -> None:
        super().__init__(in_channels)
        check_choice(self.name, "function", function, ("power", "log"))
        check_number(self.name, "power", power, strict=True)
        check_number(self.name, "eps", eps)
        self.function, self.power, self.eps = function, power, eps

    def transform(self, cov: Tensor) -> Tensor:
        cov = add_diagonal(cov, self.eps)
        return matrix_log(cov) if self.function == "log" else matrix_power(cov, self.power)
