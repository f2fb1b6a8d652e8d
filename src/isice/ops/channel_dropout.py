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
    """Compute channel attention: softmax of the channel means after a 1-D convolution over them.

    Args:
        x: Feature maps (B, C, H, W).
        kernel: Convolution kernel (K,), K odd.

    Returns:
        Weights (B, C); each row sums to one.

    Example:
        >>> channel_attention(torch.ones(2, 8, 7, 7), torch.zeros(3))[0, 0]
        tensor(0.1250)
    """
    check_feature_map("channel_attention", x)
    taps = len(kernel)
    if kernel.ndim != 1 or taps % 2 == 0:
        raise ValueError(f"channel_attention: expected a kernel (K,) with K odd, got {tuple(kernel.shape)}.")
    windows = functional.pad(x.mean(dim=(-2, -1)), (taps // 2, taps // 2)).unfold(-1, taps, 1)
    return torch.softmax((windows * kernel).sum(dim=-1), dim=-1)


@full_precision
def adaptive_drop_rate(cov: Tensor, attention: Tensor) -> Tensor:
    """Compute DropCov's drop rate 1 − (10/log₂ C)·cos(Σ1, y), clamped to [0, 1].

    Fewer channels are dropped where covariance and attention agree.

    Args:
        cov: Covariance matrices Σ (B, C, C).
        attention: Weights y of the channels (B, C).

    Returns:
        Rates (B,).

    Example:
        >>> adaptive_drop_rate(torch.eye(4)[None], torch.full((1, 4), 0.25))
        tensor([0.])
    """
    check_square("adaptive_drop_rate", cov)
    if attention.shape != cov.shape[:-1]:
        raise ValueError(f"adaptive_drop_rate: expected weights {tuple(cov.shape[:-1])}, got {tuple(attention.shape)}.")
    agreement = (l2_normalize(cov.sum(dim=-1)) * l2_normalize(attention)).sum(dim=-1)
    return (1 - 10 / max(math.log2(cov.shape[-1]), 1.0) * agreement).clamp(0, 1)


def hashed_uniform(key: Tensor, frequencies: Tensor, offset: Tensor) -> Tensor:
    """Return pseudo-random numbers frac(fᵀkey + offset) in [0, 1), determined by ``key``.

    With frequencies of about 1e6, a change of the key by 1e-6 gives unrelated numbers.

    Args:
        key: The key (K,).
        frequencies: Large random numbers (K, C).
        offset: Uniform random numbers (C,).

    Example:
        >>> frequencies, offset = torch.tensor([[3.0, 4.0]]), torch.tensor([0.0, 0.25])
        >>> hashed_uniform(torch.tensor([0.5]), frequencies, offset)
        tensor([0.5000, 0.2500])
    """
    check_floating("hashed_uniform", key)
    if key.ndim != 1 or frequencies.shape != (*key.shape, *offset.shape):
        raise ValueError(
            f"hashed_uniform: expected a key (K,), frequencies (K, C) and an offset (C,), "
            f"got {tuple(key.shape)}, {tuple(frequencies.shape)} and {tuple(offset.shape)}."
        )
    # In float32 the large phase would have no fractional digits.
    phase = (key.double()[:, None] * frequencies.double()).sum(dim=0) + offset.double()
    return (phase - phase.floor()).to(key.dtype)


@full_precision
def drop_channels(cov: Tensor, rate: Tensor, noise: Tensor) -> Tensor:
    """Return the covariance after channel dropout.

    Channels with ``noise < rate`` become zero, the others are multiplied by 1/(1 − rate).

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
