"""DropCov: covariance pooling with adaptive channel dropout in training."""

import torch
from torch import Tensor, nn

from .._checks import check_int
from ..ops.channel_dropout import adaptive_drop_rate, channel_attention, drop_channels, hashed_uniform
from ..ops.covariance import covariance
from . import SPDPooling, register_pooling


@register_pooling
class DropCov(SPDPooling):
    """DropCov: covariance pooling with channel attention and adaptive channel dropout in training.

    Training: attention y = softmax(conv₃(mean x)), x ← x + y·x, then channel dropout with the rate
    1 − (10/log₂ C)·cos(Σ1, y) of each image. Evaluation: plain covariance.

    The dropout mask is a hash of the attention weights and ``seed``, so the output depends only on
    the input and the state_dict, also in training. Every step changes the weights and the mask.

    Args:
        seed: Seed of the initial attention weights and of the masks.

    Example:
        >>> DropCov(8)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 36])
    """

    reference = "Wang et al.: DropCov: A Simple yet Effective Method for Improving Deep Architectures, NeurIPS 2022"
    fidelity = "reconstructed"
    evidence = "the authors' published code, apart from the assumptions"
    assumed = (
        "a rate per image (authors' code: the batch mean); one mask per step for all images, hashed from the weights"
    )

    frequencies: Tensor
    offset: Tensor

    def __init__(self, in_channels: int, *, seed: int = 0) -> None:
        super().__init__(in_channels)
        check_int(self.name, "seed", seed, minimum=0)
        self.seed = seed
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(nn.init.uniform_(torch.empty(3), -(3**-0.5), 3**-0.5, generator=generator))
        self.register_buffer("frequencies", 1e6 * torch.randn(3, in_channels, generator=generator))
        self.register_buffer("offset", torch.rand(in_channels, generator=generator))

    @property
    def needs_positions(self) -> bool:
        return False

    def matrix(self, x: Tensor) -> Tensor:
        if not self.training:
            return covariance(x)
        attention = channel_attention(x, self.weight.to(x.dtype))
        cov = covariance(x * (1 + attention[..., None, None]))
        rate = adaptive_drop_rate(cov, attention).detach()
        noise = hashed_uniform(self.weight.detach(), self.frequencies, self.offset).to(x.dtype)
        return drop_channels(cov, rate, noise)
