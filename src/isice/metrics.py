"""⑧ Numbers about predictions: top-k accuracy, its uncertainty, and mean ± standard deviation over seeds."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # reports use the plain numbers below and must not wait for torch
    from torch import Tensor


def topk_correct(logits: "Tensor", target: "Tensor", k: int = 1) -> int:
    """How many rows of ``logits`` (B, K) have the class ``target`` (B,) among their ``k`` largest.

    Example:
        >>> import torch
        >>> topk_correct(torch.tensor([[0.1, 0.9], [0.8, 0.2]]), torch.tensor([1, 1]))
        1
    """
    if logits.ndim != 2 or target.shape != logits.shape[:1]:
        raise ValueError(
            "topk_correct: expected logits (B, K) and classes (B,), "
            f"got {tuple(logits.shape)} and {tuple(target.shape)}."
        )
    if not 1 <= k <= logits.shape[1]:
        raise ValueError(f"topk_correct: expected 1 ≤ k ≤ {logits.shape[1]} classes, got {k}.")
    return int((logits.topk(k, dim=1).indices == target[:, None]).any(dim=1).sum())


class MeanStd(NamedTuple):
    """A mean with its sample standard deviation (nan for a single value) and the number of values."""

    mean: float
    std: float
    n: int


def mean_std(values: Sequence[float]) -> MeanStd:
    """Mean and sample standard deviation (÷ (n − 1)) over seeds.

    Example:
        >>> mean_std([1.0, 2.0, 3.0])
        MeanStd(mean=2.0, std=1.0, n=3)
    """
    n = len(values)
    if n == 0:
        raise ValueError("mean_std: expected at least one value, got none.")
    mean = math.fsum(values) / n
    std = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1)) if n > 1 else math.nan
    return MeanStd(mean, std, n)


def wilson_interval(accuracy: float, n: int, z: float = 1.96) -> tuple[float, float]:
    """The interval (95 % by default) in which the accuracy behind ``accuracy`` on ``n`` images lies (Wilson 1927).

    Example:
        >>> low, high = wilson_interval(0.9, 100)
        >>> round(low, 3), round(high, 3)
        (0.826, 0.945)
    """
    if n < 1 or not 0.0 <= accuracy <= 1.0:
        raise ValueError(f"wilson_interval: expected 0 ≤ accuracy ≤ 1 and n ≥ 1, got {accuracy} and {n}.")
    centre = (accuracy + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(accuracy * (1 - accuracy) / n + z * z / (4 * n * n))
    return max(centre - half, 0.0), min(centre + half, 1.0)
