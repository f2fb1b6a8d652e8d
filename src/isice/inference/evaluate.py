"""Evaluate a run on one split of its data and store the scores in the run folder."""

import datetime
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from .._atomic import write_atomically
from .._checks import check_choice
from ..config import RunConfig, config_hash, override, to_dict
from ..data import Split, Splits, load_splits
from ..metrics import ScoreKeeper, Scores, wilson_interval
from ..records import EVALUATION_FILE, commit, read_evaluations, versions
from ..train import Trained, load_trained
from ..train.hardware import hardware
from ..train.launch import cpu_threads, resolve_device
from ..train.loaders import eval_loader
from .predict import probabilities

SPLITS = ("test", "val", "train")

Track = Callable[[Iterable[Any]], Iterable[Any]]


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
        """Return plain values; the confusion matrix is a list of nonzero [true, predicted, count]."""
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


def evaluate_run(
    folder: str | Path,
    *,
    split: str = "test",
    which: str = "best",
    flip: bool = False,
    settings: Iterable[str] = (),
    track: Track = iter,
) -> Evaluation:
    """Evaluate the network of a run and add the result to ``evaluation.json`` in its folder.

    All splits use the test transform, ``"train"`` too. The device is the GPU if there is one; the
    precision is that of the run on a GPU and float32 on a CPU.

    Args:
        folder: The run folder.
        split: ``"test"``, ``"val"`` or ``"train"``.
        which: The checkpoint: ``"best"``, the epoch that the record reports, or ``"last"``.
        flip: Average the probabilities of each image and its mirror image; always so if the run sets
            ``eval_flip``.
        settings: Overrides of the config (``"data.root=…"``, ``"device=cpu"``, ``"precision=fp32"``).
        track: Wraps the iterator over batches, to display progress.
    """
    check_choice("eval", "split", split, SPLITS)
    settings = list(settings)
    trained = load_trained(folder, which)
    config = _evaluation_config(trained.config, settings)
    flip = flip or config.eval_flip
    device = resolve_device(config.device)
    with cpu_threads(config.threads):
        splits = load_splits(config.data)
        _check_classes(trained, splits)
        images = _select_split(splits, split, config)
        start = time.perf_counter()
        scores, *classes = _score(trained, images, config, device, flip, track)
        seconds = time.perf_counter() - start
    key = {"split": split, "which": which, "epoch": trained.epoch, "flip": flip, "settings": settings}
    facts = {**key, **_provenance(trained, config, device, seconds), "skipped_images": len(splits.skipped)}
    evaluation = Evaluation(scores, trained.classes, facts, *classes)
    _write(Path(folder) / EVALUATION_FILE, evaluation.to_dict(), tuple(key))
    return evaluation


def _evaluation_config(config: RunConfig, settings: list[str]) -> RunConfig:
    """Return the config of the run with the device of this machine.

    On a GPU the cache of the run is used: a sweep then decodes the test images once.
    """
    config = override(replace(config, device="auto"), settings)
    if config.data.cache != "gpu" or resolve_device(config.device).type != "cuda":
        config = replace(config, data=replace(config.data, cache="none"))
    asked = any(setting.split("=")[0].strip() == "precision" for setting in settings)
    on_cpu = resolve_device(config.device).type == "cpu"
    return replace(config, precision="fp32") if on_cpu and not asked else config


def _check_classes(trained: Trained, splits: Splits) -> None:
    found = splits.info.classes
    if found == trained.classes:
        return
    if len(found) != len(trained.classes):
        raise ValueError(
            f"eval: expected data with the {len(trained.classes)} classes of the network, got {len(found)} classes; "
            "evaluate on the dataset of the run."
        )
    other = next((ours, theirs) for ours, theirs in zip(trained.classes, found, strict=True) if ours != theirs)
    raise ValueError(
        f"eval: expected the classes of the network, got {other[1]!r} instead of {other[0]!r}; "
        "evaluate on the dataset of the run."
    )


def _select_split(splits: Splits, split: str, config: RunConfig) -> Split:
    if split == "train":
        return Split(splits.train.source, splits.test.transform, splits.train.indices.tolist())
    chosen = splits.val if split == "val" else splits.test
    if chosen is None:
        raise ValueError(f"eval: expected a validation split of {config.data.name!r}, got none; use --split test.")
    return chosen


def _score(
    trained: Trained, split: Split, config: RunConfig, device: torch.device, flip: bool, track: Track
) -> tuple[Scores, tuple[int, ...], tuple[int, ...]]:
    """Return the scores, and the true and predicted class of every image."""
    model, keeper = trained.model.to(device), ScoreKeeper(len(trained.classes))
    targets, predicted = list[int](), list[int]()
    layout = torch.channels_last if config.channels_last else torch.preserve_format
    for images, target in track(eval_loader(config, split, device)):
        images = images.to(device, non_blocking=True, memory_format=layout)
        found = probabilities(model, images, flip=flip, precision=config.precision)
        keeper.update(found, target)
        targets += target.tolist()
        predicted += found.argmax(dim=1).tolist()
    return keeper.scores(), tuple(targets), tuple(predicted)


def _provenance(trained: Trained, config: RunConfig, device: torch.device, seconds: float) -> dict[str, Any]:
    return {
        "run": config_hash(trained.config),
        "data": to_dict(config)["data"],
        "precision": config.precision,
        "evaluated": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": seconds,
        "commit": commit(),
        "versions": versions(),
        "hardware": hardware(device),
    }


def _write(path: Path, entry: dict[str, Any], key: tuple[str, ...]) -> None:
    """Add an evaluation to the file; it replaces one with the same values of ``key``."""
    before = read_evaluations(path.parent)
    kept = [old for old in before if any(old.get(name) != entry[name] for name in key)]
    lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in [*kept, entry])
    write_atomically(path, f'{{"schema": 1, "evaluations": [\n{lines}\n]}}\n')
