"""Partial correlation: the precision matrix without the scale of its variables, unit diagonal."""

from typing import Literal

from torch import Tensor

from .._checks import check_choice, check_int, check_number
from ..ops.correlation import partial_correlation
from ..ops.regularized_precision import regularized_precision
from ._base import SPDPooling
from ._registry import register_pooling


@register_pooling
class PartialCorrelation(SPDPooling):
    """−Ω_ij/√(Ω_ii Ω_jj) of a regularised inverse covariance; D(D+1)/2 numbers.

    Args:
        in_channels: Channels D of the feature map.
        method: The inverse: ``"newton_schulz"`` stopped after ``n_inverse_iter`` steps, or exact with a ``"ridge"``.
        n_inverse_iter: Newton–Schulz steps.
        ridge: Weight of the identity against a mean eigenvalue of one.
        scale: Factor of the output.

    Example:
        >>> import torch
        >>> PartialCorrelation(8, method="ridge")(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 36])
    """

    reference = "Dempster: Covariance Selection, Biometrics 1972; as a layer: this package"

    def __init__(
        self,
        in_channels: int,
        *,
        method: Literal["newton_schulz", "ridge"] = "newton_schulz",
        n_inverse_iter: int = 7,
        ridge: float = 1.0,
        scale: float = 1.0,
    ) -> None:
        super().__init__(in_channels)
        check_choice(self.name, "method", method, ("newton_schulz", "ridge"))
        check_int(self.name, "n_inverse_iter", n_inverse_iter, minimum=1)
        check_number(self.name, "ridge", ridge, strict=True)
        check_number(self.name, "scale", scale, strict=True)
        self.method = method
        self.n_inverse_iter = n_inverse_iter
        self.ridge = ridge
        self.scale = scale

    def transform(self, cov: Tensor) -> Tensor:
        precision = regularized_precision(cov, method=self.method, n_iter=self.n_inverse_iter, ridge=self.ridge)
        return self.scale * partial_correlation(precision)

    def partial_correlations(self, x: Tensor) -> Tensor:
        return self.matrix(x) / self.scale
