"""③ Adaptive channel dropout before covariance pooling (DropCov)."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from .._checks import check_feature_map, check_floating, check_square
from ._numerics import full_precision
from .signed_sqrt import l2_normalize


@full_precision
def channel_attention(x: Tensor, kernel: Tensor) -> Tensor:
    """Shares of the channels in a map: softmax over channels of their means, correlated with ``kernel``.

    Args:
        x: Feature maps (B, C, H, W).
        kernel: An odd number of taps (K,) that slide along the channels.

    Returns:
        Shares (B, C), each row sums to one.

    Example:
        >>> channel_attention(torch.ones(2, 8, 7, 7), torch.zeros(3))[0, 0]
        tensor(0.1250)
    """
    check_feature_map("channel_attention", x)
    taps = len(kernel)
    windows = functional.pad(x.mean(dim=(-2, -1)), (taps // 2, taps // 2)).unfold(-1, taps, 1)
    return torch.softmax((windows * kernel).sum(dim=-1), dim=-1)


@full_precision
def adaptive_drop_rate(cov: Tensor, attention: Tensor) -> Tensor:
    """DropCov's rate 1 − (10/log₂ C)·cos(Σ1, y), clamped to [0, 1]: less is dropped where variance and attention agree.

    Args:
        cov: Covariance matrices Σ (B, C, C).
        attention: Shares y of the channels (B, C).

    Returns:
        Rates (B,).

    Example:
        >>> adaptive_drop_rate(torch.eye(4)[None], torch.full((1, 4), 0.25))
        tensor([0.])
    """
    check_square("adaptive_drop_rate", cov)
    agreement = (l2_normalize(cov.sum(dim=-1)) * l2_normalize(attention)).sum(dim=-1)
    return (1 - 10 / max(math.log2(cov.shape[-1]), 1.0) * agreement).clamp(0, 1)


def hashed_uniform(key: Tensor, frequencies: Tensor, offset: Tensor) -> Tensor:
    """Pseudo-random numbers in [0, 1) that follow from ``key`` alone, frac(fᵀkey + offset).

    With frequencies of about 1e6 the smallest change of a key of order one gives unrelated numbers.

    Args:
        key: The key (K,).
        frequencies: Large random numbers (K, C).
        offset: Uniform random numbers (C,).

    Example:
        >>> hashed_uniform(torch.tensor([0.5]), torch.tensor([[3.0, 4.0]]), torch.tensor([0.0, 0.25]))
        tensor([0.5000, 0.2500])
    """
    check_floating("hashed_uniform", key)
    # float64, because float32 would leave no digits after the decimal point.
    phase = (key.double()[:, None] * frequencies.double()).sum(dim=0) + offset.double()
    return (phase - phase.floor()).to(key.dtype)


@full_precision
def drop_channels(cov: Tensor, rate: Tensor, noise: Tensor) -> Tensor:
    """Covariance after channel dropout: channels with ``noise < rate`` vanish, the others grow by 1/(1 − rate).

    Args:
        cov: Covariance matrices (B, C, C) before dropout.
        rate: Rates (B,) in [0, 1].
        noise: Uniform numbers (C,) or (B, C) in [0, 1).

    Example:
        >>> drop_channels(torch.ones(1, 2, 2), torch.tensor([0.5]), torch.tensor([0.2, 0.7]))
        tensor([[[0., 0.],
                 [0., 4.]]])
    """
    check_square("drop_channels", cov)
    keep = (noise >= rate[:, None]).to(cov.dtype) / (1 - rate[:, None]).clamp_min(1e-3)
    return cov * keep.unsqueeze(-1) * keep.unsqueeze(-2)
