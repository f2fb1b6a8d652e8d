"""⑧ Metrics of predictions: accuracy, confusion, calibration, intervals, mean ± deviation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ._checks import check_int

if TYPE_CHECKING:  # reports import this module without torch
    from torch import Tensor

# Number of confidence bins in Guo et al. (2017).
CALIBRATION_BINS = 15


@dataclass(frozen=True)
class Scores:
    """Accuracy, calibration and confusion matrix of predictions.

    Attributes:
        images: Number of images N.
        top1: Top-1 accuracy.
        top5: Top-5 accuracy; None with fewer than five classes.
        ece: Expected calibration error over 15 bins of confidence.
        per_class: Top-1 accuracy of every class; None for a class without images.
        confusion: Counts (K, K); rows are true classes, columns predicted ones.
    """

    images: int
    top1: float
    top5: float | None
    ece: float
    per_class: tuple[float | None, ...]
    confusion: "Tensor"

    def confused_pairs(self, most: int = 5) -> list[tuple[int, int, int]]:
        """Return the most frequent errors: (true class, predicted class, count), by count."""
        wrong = self.confusion.clone().fill_diagonal_(0)
        counts, cells = wrong.flatten().topk(min(most, wrong.numel()))
        pairs = zip(cells.tolist(), counts.tolist(), strict=True)
        return [(*divmod(cell, len(wrong)), count) for cell, count in pairs if count]


class ScoreKeeper:
    """Accumulate predictions batch by batch and compute their :class:`Scores`.

    Args:
        num_classes: Number of classes K.

    Example:
        >>> keeper = ScoreKeeper(2)
        >>> keeper.update(torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 1]))
        >>> scores = keeper.scores()
        >>> scores.top1, scores.per_class, scores.confused_pairs()
        (0.5, (1.0, 0.0), [(1, 0, 1)])
    """

    def __init__(self, num_classes: int) -> None:
        check_int("ScoreKeeper", "num_classes", num_classes, minimum=2)
        self.num_classes = num_classes
        # Per batch: true and predicted class, confidence, and whether the top five hold the class.
        self._batches: list[tuple[Tensor, ...]] = []

    def update(self, probabilities: "Tensor", target: "Tensor") -> None:
        """Add a batch of probabilities (B, K) and true classes (B,)."""
        if probabilities.ndim != 2 or probabilities.shape[1] != self.num_classes:
            raise ValueError(
                f"ScoreKeeper: expected probabilities (B, {self.num_classes}), got {tuple(probabilities.shape)}."
            )
        if not probabilities.isfinite().all():
            bad = int((~probabilities.isfinite()).any(dim=1).sum())
            raise FloatingPointError(
                f"ScoreKeeper: expected finite probabilities, got others for {bad} of {len(target)} images; "
                "check the weights, or use a higher precision."
            )
        target = target.to(probabilities.device)
        best, classes = probabilities.topk(min(5, self.num_classes), dim=1)
        among = (classes == target[:, None]).any(dim=1)
        self._batches.append((target, probabilities.argmax(dim=1), best[:, 0], among))

    def scores(self) -> Scores:
        """Compute the scores of all batches so far."""
        if not self._batches:
            raise ValueError("ScoreKeeper: expected at least one image, got none; call update() first.")
        import torch

        k = self.num_classes
        target, predicted, confidence, among = (torch.cat(parts).cpu() for parts in zip(*self._batches, strict=True))
        confusion = (target * k + predicted).bincount(minlength=k * k).reshape(k, k)
        correct, images = confusion.diagonal(), confusion.sum(dim=1)
        n = len(target)
        rates = zip(correct.tolist(), images.tolist(), strict=True)
        return Scores(
            images=n,
            top1=int(correct.sum()) / n,
            top5=int(among.sum()) / n if k >= 5 else None,
            ece=_calibration_error(confidence, predicted == target),
            per_class=tuple(right / of if of else None for right, of in rates),
            confusion=confusion,
        )


def _calibration_error(confidence: "Tensor", right: "Tensor") -> float:
    """Return the mean |accuracy − confidence| of bins (low, high], weighted by their images."""
    bins = (confidence.double() * CALIBRATION_BINS).ceil().long().clamp(1, CALIBRATION_BINS) - 1
    gap = (right.double() - confidence.double()) / len(confidence)
    sums: Tensor = gap.new_zeros(CALIBRATION_BINS).index_add_(0, bins, gap)
    return float(sums.abs().sum())


class MeanStd(NamedTuple):
    """Mean, sample standard deviation (nan for a single value) and number of values."""

    mean: float
    std: float
    n: int


def mean_std(values: Sequence[float]) -> MeanStd:
    """Return mean and sample standard deviation (÷ (n − 1)).

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
    """Return Wilson's score interval (1927), by default 95 %, of an accuracy on ``n`` images.

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
