"""iSQRT-COV: the matrix square root of the covariance by Newton–Schulz iteration."""

from typing import cast

from torch import Tensor

from .._checks import check_int
from ..ops.covariance import covariance
from ..ops.newton_schulz import newton_schulz_sqrt
from . import register_pooling
from ._scale import ScaledPooling


@register_pooling
class ISQRTCov(ScaledPooling):
    """iSQRT-COV: the square root of the covariance by N Newton–Schulz steps.

    Args:
        n_iter: Newton–Schulz steps N.
        scale: Factor applied to the output.
        learn_scale: Train the logarithm of this factor.
        standardize: Divide the output by the standard deviation that :func:`isice.initialize`
            measures, then multiply by ``scale``.

    Example:
        >>> ISQRTCov(8)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 36])
    """

    reference = "Li, Xie, Wang, Gao: Towards Faster Training of Global Covariance Pooling Networks, CVPR 2018"
    fidelity = "verified"
    evidence = (
        "jiangtaoxie/fast-MPN-COV; values and gradients of csiro-robotics/iSICE to 1e-6 in tests/ops/test_golden.py"
    )

    def __init__(
        self,
        in_channels: int,
        *,
        n_iter: int = 5,
        scale: float = 1.0,
        learn_scale: bool = False,
        standardize: bool = False,
    ) -> None:
        super().__init__(in_channels, scale=scale, learn_scale=learn_scale, standardize=standardize)
        check_int(self.name, "n_iter", n_iter, minimum=1)
        self.n_iter = n_iter

    def transform(self, cov: Tensor) -> Tensor:
        return cast(Tensor, self.output(newton_schulz_sqrt(cov, n_iter=self.n_iter)))

    def unscaled(self, x: Tensor) -> Tensor:
        return newton_schulz_sqrt(covariance(x), n_iter=self.n_iter, vectorized=True)
