"""Precision Ω: the regularised inverse of the covariance, the paper's own baseline."""

from torch import Tensor

from .._checks import check_int
from ..ops.covariance import covariance
from ..ops.newton_schulz import newton_schulz_inverse
from . import SPDPooling, register_pooling


@register_pooling
class Precision(SPDPooling):
    """Precision Ω: the inverse covariance by N_s Newton–Schulz steps (Alg. 1).

    ``isice(n_iter=0)`` is the same inverse for Σ/tr Σ, divided by the square root of its trace.

    Args:
        n_inverse_iter: Newton–Schulz steps N_s.

    Example:
        >>> Precision(8)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 36])
    """

    reference = "Rahman et al.: Learning Partial Correlation based Deep Visual Representation, CVPR 2023 (Alg. 1)"
    fidelity = "verified"
    evidence = (
        "csiro-robotics/iSICE: values and gradients of the published code to 1e-6, of Alg. 1 to 1e-10, in "
        "tests/ops/test_golden.py"
    )
    estimates_precision = True

    def __init__(self, in_channels: int, *, n_inverse_iter: int = 7) -> None:
        super().__init__(in_channels)
        check_int(self.name, "n_inverse_iter", n_inverse_iter, minimum=1)
        self.n_inverse_iter = n_inverse_iter

    def transform(self, cov: Tensor) -> Tensor:
        return newton_schulz_inverse(cov, n_iter=self.n_inverse_iter)

    def pool(self, x: Tensor) -> Tensor:
        return newton_schulz_inverse(covariance(x), n_iter=self.n_inverse_iter, vectorized=True)
