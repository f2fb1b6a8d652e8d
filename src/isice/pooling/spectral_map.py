"""Spectral map: a saturating function of the covariance's eigenvalues."""

from typing import Literal, cast

from torch import Tensor

from .._checks import check_choice, check_number
from ..ops.correlation import correlation
from ..ops.covariance import covariance
from ..ops.ridge import SaturatingMap, saturate
from ..ops.vectorize import vectorize
from . import register_pooling
from ._scale import ScaledPooling


@register_pooling
class SpectralMap(ScaledPooling):
    """Spectral map: x/(x + r) or log(1 + x/r) applied to the eigenvalues of D·Σ/tr Σ.

    With ``"ratio"`` the off-diagonal entries are −rΩ_ij with Ω = (D·Σ/tr Σ + rI)⁻¹, as in
    ``partial_correlation(ridge=r, center=True)`` before the division by the diagonal of Ω.

    Args:
        kind: ``"ratio"`` or ``"log"``, see :func:`isice.functional.saturate`.
        ridge: r, the eigenvalue at which saturation begins, in units of the mean eigenvalue.
        power: Power of the covariance, applied first.
        normalize: ``"none"``, or ``"correlation"`` to scale the result to unit diagonal.
        scale: Factor applied to the output.
        learn_scale: Train the logarithm of this factor.
        standardize: Divide the output by the standard deviation that :func:`isice.initialize`
            measures, then multiply by ``scale``.

    Example:
        >>> SpectralMap(8, ridge=10)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 36])
    """

    reference = "this package; the ratio is the shrunk inverse of Ledoit, Wolf: J. Multivariate Analysis 2004"
    fidelity = "original"
    evidence = "its functions of eigenvalues are tested in tests/ops/test_ridge.py"

    def __init__(
        self,
        in_channels: int,
        *,
        kind: SaturatingMap = "ratio",
        ridge: float = 10.0,
        power: float = 1.0,
        normalize: Literal["none", "correlation"] = "none",
        scale: float = 1.0,
        learn_scale: bool = False,
        standardize: bool = False,
    ) -> None:
        super().__init__(in_channels, scale=scale, learn_scale=learn_scale, standardize=standardize)
        check_choice(self.name, "kind", kind, ("ratio", "log"))
        check_choice(self.name, "normalize", normalize, ("none", "correlation"))
        check_number(self.name, "ridge", ridge, strict=True)
        check_number(self.name, "power", power, strict=True)
        self.kind, self.ridge, self.power, self.normalize = kind, ridge, power, normalize

    @property
    def needs_positions(self) -> bool:
        return False

    def _mapped(self, cov: Tensor) -> Tensor:
        mapped = saturate(cov, self.ridge, kind=self.kind, power=self.power)
        return correlation(mapped) if self.normalize == "correlation" else mapped

    def transform(self, cov: Tensor) -> Tensor:
        return cast(Tensor, self.output(self._mapped(cov)))

    def unscaled(self, x: Tensor) -> Tensor:
        return vectorize(self._mapped(covariance(x)))
