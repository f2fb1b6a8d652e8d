"""Scale of a pooling's output: fixed, learned, or set for unit variance of the features."""

import math
from typing import cast

import torch
from torch import Tensor, nn

from .._checks import check_bool, check_number
from ._base import SPDPooling

# A variance below this is that of a single or constant batch, which cannot set a scale.
_NO_VARIANCE = 1e-14


class OutputScale(nn.Module):
    """Multiply vectors or matrices by ``scale`` and by the gain set by :meth:`init_from`.

    A fixed ``scale`` adds nothing to the state dict.

    Args:
        who: Name of the layer, for errors.
        scale: The factor, or its first value.
        learn: The factor is exp of a parameter.
        standardize: :meth:`init_from` sets a gain of one over the standard deviation of vectors.
    """

    gain: Tensor

    def __init__(self, who: str, scale: float, *, learn: bool = False, standardize: bool = False) -> None:
        super().__init__()
        check_number(who, "scale", scale, strict=True)
        self.scale, self.learn, self.standardize = scale, learn, standardize
        if learn:
            self.log_scale = nn.Parameter(torch.tensor(math.log(scale)))
        if standardize:
            self.register_buffer("gain", torch.ones(()))

    @torch.no_grad()
    def init_from(self, vectors: Tensor) -> None:
        """Set the gain from unscaled vectors (B, F), unless they have no variance."""
        if not self.standardize:
            return
        variance = vectors.var(dim=0, correction=0).mean()
        if variance > _NO_VARIANCE:
            self.gain.copy_(variance.rsqrt())

    def forward(self, x: Tensor) -> Tensor:
        """Scale ``x``."""
        factor = self.log_scale.exp().to(x.dtype) if self.learn else self.scale
        if self.standardize:
            return x * (factor * self.gain.to(x.dtype))
        return x if isinstance(factor, float) and factor == 1.0 else x * factor


class ScaledPooling(SPDPooling):
    """Base class of SPD pooling with an :class:`OutputScale`; a subclass defines ``unscaled``."""

    def __init__(self, in_channels: int, *, scale: float, learn_scale: bool, standardize: bool) -> None:
        super().__init__(in_channels)
        check_bool(self.name, learn_scale=learn_scale, standardize=standardize)
        self.scale, self.learn_scale, self.standardize = scale, learn_scale, standardize
        self.output = OutputScale(self.name, scale, learn=learn_scale, standardize=standardize)

    def unscaled(self, x: Tensor) -> Tensor:
        """Map features (B, C, H, W) to vectors (B, out_features) before they are scaled."""
        raise TypeError(f"{type(self).__name__}: expected a subclass that defines unscaled(); define it.")

    def pool(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.output(self.unscaled(x)))

    @property
    def wants_data(self) -> bool:
        return self.standardize

    def init_from(self, x: Tensor) -> None:
        """Measure the standard deviation of the output on training features (B, C, H, W)."""
        self.output.init_from(self.unscaled(x))
