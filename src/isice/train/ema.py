"""A running average of a network's weights, which often predicts better than the newest ones."""

import copy

import torch
from torch import nn


class AveragedWeights:
    """A copy of a model whose parameters follow it as an exponential moving average; buffers are copied.

    Args:
        model: The model that learns; it is not changed.
        decay: Weight of the past at each update. Until about 1/(1 − decay) updates are done the plain mean is kept
            instead, so that the initial weights are soon forgotten.

    Attributes:
        module: The averaged model, in eval mode.
        updates: How many updates were made.

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
        """Takes the model's weights into the average."""
        self.updates += 1
        weight = max(1.0 - self.decay, 1.0 / self.updates)
        for mine, other in zip(self.module.parameters(), model.parameters(), strict=True):
            mine.lerp_(other, weight)
        for held, current in zip(self.module.buffers(), model.buffers(), strict=True):
            held.copy_(current)
