"""Generalised mean of each channel, a pooling for isice."""

from torch import Tensor

import isice


@isice.register_pooling("power_mean")
class PowerMean(isice.Pooling):
    """Generalised mean (mean of x^p)^(1/p) of each channel; p → ∞ gives the maximum."""

    reference = "Radenović et al., Fine-tuning CNN image retrieval with no human annotation, 2018"

    def __init__(self, in_channels: int, *, power: float = 3.0, eps: float = 1e-6) -> None:
        super().__init__(in_channels)
        self.power, self.eps = power, eps
        self.out_features = in_channels

    def pool(self, x: Tensor) -> Tensor:
        x = x.clamp(min=self.eps)
        largest = x.amax(dim=(-2, -1), keepdim=True)  # so that large powers stay finite
        mean = (x / largest).pow(self.power).mean(dim=(-2, -1))
        return largest.flatten(1) * mean.pow(1.0 / self.power)
