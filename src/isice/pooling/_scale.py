"""The factor of a pooling's output: fixed, learned, or set so that the classifier's inputs start at unit variance."""

import math

import torch
from torch import Tensor, nn

from .._checks import check_number

# A variance below this is that of a single or constant batch, which cannot set a scale.
_NO_VARIANCE = 1e-14


class OutputScale(nn.Module):
    """Multiplies vectors or matrices by ``scale``, times the gain that :meth:`init_from` sets.

    A plain ``scale`` adds nothing to the state dict.

    Args:
        who: Name of the layer, for errors.
        scale: The factor, or its first value.
        learn: The factor is exp of a parameter.
        standardize: :meth:`init_from` sets a gain of one over the standard deviation of the vectors that it sees.
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
        """Sets the gain from pooled vectors (B, F) before scaling; one image, or equal ones, leave it as it is."""
        if not self.standardize:
            return
        variance = vectors.var(dim=0, correction=0).mean()
        if variance > _NO_VARIANCE:
            self.gain.copy_(variance.rsqrt())

    def forward(self, x: Tensor) -> Tensor:
        """Scales ``x``."""
        factor = self.log_scale.exp().to(x.dtype) if self.learn else self.scale
        if self.standardize:
            return x * (factor * self.gain.to(x.dtype))
        return x if isinstance(factor, float) and factor == 1.0 else x * factor
