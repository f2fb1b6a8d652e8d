"""Partial-correlation pooling.

A regularised inverse of the second moments, scaled to unit diagonal with signs reversed off it.
"""

import math
import warnings
from typing import Literal, cast

import torch
from torch import Tensor, nn

from .._checks import check_bool, check_choice, check_int, check_number
from ..ops.correlation import correlation, partial_correlation
from ..ops.covariance import covariance
from ..ops.regularized_precision import regularized_precision
from ..ops.ridge import ridge_inverse
from ..ops.second_moment import second_moment
from ..ops.shrinkage import RULES, ShrinkageRule, shrinkage_ridge
from ..ops.vectorize import vectorize
from . import register_pooling
from ._scale import ScaledPooling


@register_pooling
class PartialCorrelation(ScaledPooling):
    """Partial correlations −Ω_ij/√(Ω_ii Ω_jj) from a regularised inverse Ω of the second moments.

    The defaults suit natural images: moments about zero keep the mean of each channel, and a strong
    ridge limits the leading directions and suppresses the weak ones. For partial correlations in
    the statistical sense use ``center=True`` and a small ridge.

    The diagonal of the output is constant, so D of the D(D + 1)/2 features carry no information.

    Args:
        ridge: Weight of the identity in units of the mean eigenvalue, or a rule that estimates
            it from each image's features: ``"ledoit_wolf"``, ``"oas"``, or
            ``"schaefer_strimmer"``, which shrinks the correlation matrix instead of the
            covariance. Rules need ``center=True``. Unused by ``"newton_schulz"``.
        center: Subtract the mean of each channel, so that Ω is an inverse covariance.
        method: How Ω is regularised: ``"ridge"`` adds the ridge, ``"newton_schulz"`` stops after
            ``n_inverse_iter`` steps instead.
        n_inverse_iter: Steps of ``"newton_schulz"``; unused by ``"ridge"``.
        learn_ridge: Train the logarithm of the ridge, or of a factor if a rule estimates it.
        scale: Factor applied to the output.
        learn_scale: Train the logarithm of this factor.
        standardize: Divide the output by the standard deviation that :func:`isice.initialize`
            measures, then multiply by ``scale``.

    Example:
        >>> PartialCorrelation(8)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 36])
    """

    reference = "Dempster: Covariance Selection, Biometrics 1972; as a layer: this package"
    fidelity = "original"
    evidence = "correlations of regression residuals, in tests/ops/test_correlation.py"

    def __init__(
        self,
        in_channels: int,
        *,
        ridge: float | ShrinkageRule = 10.0,
        center: bool = False,
        method: Literal["ridge", "newton_schulz"] = "ridge",
        n_inverse_iter: int = 7,
        learn_ridge: bool = False,
        scale: float = 5.0,
        learn_scale: bool = False,
        standardize: bool = False,
    ) -> None:
        super().__init__(in_channels, scale=scale, learn_scale=learn_scale, standardize=standardize)
        check_bool(self.name, center=center, learn_ridge=learn_ridge)
        check_choice(self.name, "method", method, ("ridge", "newton_schulz"))
        check_int(self.name, "n_inverse_iter", n_inverse_iter, minimum=1)
        by_rule = isinstance(ridge, str)
        if by_rule:
            check_choice(self.name, "ridge", ridge, RULES)
        else:
            check_number(self.name, "ridge", ridge, strict=True)
        if method == "newton_schulz" and (learn_ridge or by_rule):
            raise ValueError(
                f"{self.name}: expected method='ridge' for a learned or data-driven ridge, got {method!r}."
            )
        if by_rule and not center:
            raise ValueError(f"{self.name}: expected center=True for ridge={ridge!r}, which is a rule for covariances.")
        self.method, self.n_inverse_iter, self.center = method, n_inverse_iter, center
        self.ridge, self.learn_ridge = ridge, learn_ridge
        self._reset_unused_option()
        if learn_ridge:
            self.log_ridge = nn.Parameter(torch.tensor(0.0 if isinstance(ridge, str) else math.log(ridge)))

    def _reset_unused_option(self) -> None:
        """Give the option that ``method`` ignores its default; warn if it had another value."""
        unused = "ridge" if self.method == "newton_schulz" else "n_inverse_iter"
        given, default = getattr(self, unused), PartialCorrelation.option_defaults()[unused]
        if given != default:
            # Not an error: networks saved when the default was another name the option.
            warnings.warn(
                f"{self.name}: expected no {unused} with method={self.method!r}, which does not use it, got "
                f"{given!r}; leave it out.",
                stacklevel=3,
            )
            setattr(self, unused, default)

    @property
    def needs_positions(self) -> bool:
        return self.method == "newton_schulz"

    def ridge_of(self, x: Tensor) -> float | Tensor:
        """Return the ridge for features (B, C, H, W): a number, or one value per image."""
        chosen = shrinkage_ridge(x, self.ridge) if isinstance(self.ridge, str) else self.ridge
        if not self.learn_ridge:
            return chosen
        learned = self.log_ridge.exp().to(x.dtype)
        return chosen * learned if isinstance(self.ridge, str) else learned

    def partial_correlations(self, x: Tensor) -> Tensor:
        moments = covariance(x) if self.center else second_moment(x)
        if self.method == "newton_schulz":
            return partial_correlation(regularized_precision(moments, n_iter=self.n_inverse_iter))
        if self.ridge == "schaefer_strimmer":
            moments = correlation(moments)
        return partial_correlation(ridge_inverse(moments, self.ridge_of(x)))

    def matrix(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.output(self.partial_correlations(x)))

    def unscaled(self, x: Tensor) -> Tensor:
        return vectorize(self.partial_correlations(x))
