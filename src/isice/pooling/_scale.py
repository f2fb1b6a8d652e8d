"""Scale of a pooling's output: fixed, learned, or set for unit variance of the features."""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from .._checks import check_number

# A variance below this is that of a single or constant batch, which cannot set a scale.
_NO_VARIANCE = 1e-14


class OutputScale(nn.Module):
    """Multiply vectors or matrices by ``scale`` and by the gain set by :meth:`init_from`.

    A fixed ``scale`` adds nothing to the state dict.

    Args:
        who: Name of the layer, for errors.
        scale: The factor, or its first value.
        learn: The factor is exp of a parameter.
        standardize: :meth:`init_from` sets a gain of one over the standard deviation of the vectors
            it is given.
    """

    gain: Tensor

    if TYPE_CHECKING:  # nn.Module.__call__ returns Any

        def __call__(self, x: Tensor) -> Tensor: ...

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
