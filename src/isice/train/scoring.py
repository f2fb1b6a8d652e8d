"""Scores of a network on a split, stored as ``evaluation.json`` in a run folder."""

import datetime
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .._atomic import write_atomically
from ..config import RunConfig, config_hash, to_dict
from ..metrics import ScoreKeeper, Scores, wilson_interval
from ..records import EVALUATION_FILE, commit, read_evaluations, versions
from .hardware import hardware

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
# Two evaluations with the same values of these are the same one.
_KEY = ("split", "which", "epoch", "flip", "settings")


@dataclass(frozen=True)
class Evaluation:
    """Scores of a trained network on one split.

    Attributes:
        scores: The scores.
        classes: Class names, in the order of ``scores.per_class``.
        facts: Split, checkpoint, data, precision, versions and hardware of the evaluation.
        targets: The true class of every image, in the order of the split.
        predicted: The predicted class of every image.
    """

    scores: Scores
    classes: tuple[str, ...]
    facts: dict[str, Any]
    targets: tuple[int, ...] = ()
    predicted: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; the confusion matrix as nonzero [true, predicted, count]."""
        scores = self.scores
        cells = scores.confusion.nonzero().tolist()
        return {
            **self.facts,
            "images": scores.images,
            "top1": scores.top1,
            "top1_interval": list(wilson_interval(scores.top1, scores.images)),
            "top5": scores.top5,
            "ece": scores.ece,
            "classes": list(self.classes),
            "per_class": list(scores.per_class),
            "confusion": [[true, predicted, int(scores.confusion[true, predicted])] for true, predicted in cells],
            "targets": list(self.targets),
            "predicted": list(self.predicted),
        }


def add_evaluation(folder: Path, entry: dict[str, Any]) -> None:
    """Add an evaluation to the file of a run, or replace one of the same split and options."""
    kept = [old for old in read_evaluations(folder) if any(old.get(name) != entry.get(name) for name in _KEY)]
    lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in [*kept, entry])
    write_atomically(folder / EVALUATION_FILE, f'{{"schema": 1, "evaluations": [\n{lines}\n]}}\n')


@torch.no_grad()
def probabilities(model: nn.Module, images: Tensor, *, flip: bool = False, precision: str = "fp32") -> Tensor:
    """Return class probabilities (B, K) in float32 of images (B, C, H, W).

    With ``flip``, probabilities are averaged over each image and its mirror image.

    Example:
        >>> probabilities(nn.Flatten(), torch.zeros(1, 1, 1, 2), flip=True)
        tensor([[0.5000, 0.5000]])
    """
    views = [images, images.flip(-1)] if flip else [images]
    with torch.autocast(images.device.type, _AUTOCAST.get(precision), enabled=precision in _AUTOCAST):
        logits = [model(view) for view in views]
    return torch.stack([one.float().softmax(dim=1) for one in logits]).mean(dim=0)


def score(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    config: RunConfig,
    classes: tuple[str, ...],
    device: torch.device,
    facts: dict[str, Any],
) -> Evaluation:
    """Evaluate a network in eval mode, on ``device``, over batches of images and labels.

    ``config`` gives precision and memory layout. ``facts`` are the split, the checkpoint and
    options; ``flip`` averages over mirror images.
    """
    start = time.perf_counter()
    keeper, targets, predicted = ScoreKeeper(len(classes)), list[Tensor](), list[Tensor]()
    layout = torch.channels_last if config.channels_last else torch.preserve_format
    for images, target in batches:
        images = images.to(device, non_blocking=True, memory_format=layout)
        found = probabilities(model, images, flip=facts["flip"], precision=config.precision)
        keeper.update(found, target)
        targets.append(target)
        predicted.append(found.argmax(dim=1))
    labels = [tuple(torch.cat(parts).tolist()) for parts in (targets, predicted)]
    scores, facts = keeper.scores(), facts | _provenance(config, device)
    return Evaluation(scores, classes, facts | {"seconds": time.perf_counter() - start}, *labels)


def _provenance(config: RunConfig, device: torch.device) -> dict[str, Any]:
    return {
        "run": config_hash(config),
        "data": to_dict(config)["data"],
        "precision": config.precision,
        "evaluated": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "versions": versions(),
        "hardware": hardware(device),
    }
