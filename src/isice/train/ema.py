"""Exponential moving average (EMA) of a network's weights."""

import copy

import torch
from torch import nn


class AveragedWeights:
    """Exponential moving average of the parameters of a model; buffers are copied.

    Args:
        model: The model that is trained; it is not changed.
        decay: Weight of the average at each update. The first 1/(1 − decay) updates use the
            arithmetic mean instead, so that the initial weights have no influence.

    Example:
        >>> model = nn.Linear(1, 1, bias=False)
        >>> average = AveragedWeights(model, decay=0.9)
        >>> for value in (1.0, 3.0):
        ...     _ = nn.init.constant_(model.weight, value)
        ...     average.update(model)
        >>> average.module.weight.item()
        2.0
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.module = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay, self.updates = decay, 0

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Update the average with the current weights of ``model``."""
        self.updates += 1
        weight = max(1.0 - self.decay, 1.0 / self.updates)
        for average, current in zip(self.module.parameters(), model.parameters(), strict=True):
            average.lerp_(current, weight)
        for average_buffer, buffer in zip(self.module.buffers(), model.buffers(), strict=True):
            average_buffer.copy_(buffer)
