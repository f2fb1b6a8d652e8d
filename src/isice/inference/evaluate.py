"""Evaluate a run on one split of its data and store the scores in the run folder."""

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from .._checks import check_choice
from ..config import RunConfig, config_hash, override
from ..data import Split, Splits, load_splits
from ..data.fingerprint import class_changes
from ..train import load_trained
from ..train.launch import cpu_threads, resolve_device
from ..train.loaders import eval_loader
from ..train.scoring import Evaluation, add_evaluation, score

SPLITS = ("test", "val", "train")

Track = Callable[[Iterable[Any]], Iterable[Any]]


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
        flip: Average over each image and its mirror image; set if the run has ``eval_flip``.
        settings: Overrides of the config (``"data.root=…"``,
            ``"device=cpu"``, ``"precision=fp32"``).
        track: Wraps the iterator over batches, to display progress.
    """
    check_choice("eval", "split", split, SPLITS)
    settings = list(settings)
    trained = load_trained(folder, which)
    if not os.access(folder, os.W_OK):
        raise PermissionError(
            f"eval: expected to write evaluation.json to {str(folder)!r}, got a read-only folder; copy the run."
        )
    config = _evaluation_config(trained.config, settings)
    flip = flip or config.eval_flip
    device = resolve_device(config.device)
    with cpu_threads(config.threads):
        splits = load_splits(config.data)
        for change in class_changes(trained.classes, splits.info.classes):
            raise ValueError(f"eval: expected data with the classes of the network, but {change}; use that of the run.")
        images = _select_split(splits, split, config)
        facts = {"split": split, "which": which, "epoch": trained.epoch, "flip": flip, "settings": settings}
        batches = track(eval_loader(config, images, device))
        evaluation = score(trained.model.to(device), batches, config, trained.classes, device, facts)
    evaluation.facts.update(run=config_hash(trained.config), skipped_images=len(splits.skipped))
    add_evaluation(Path(folder), evaluation.to_dict())
    return evaluation


def _evaluation_config(config: RunConfig, settings: list[str]) -> RunConfig:
    """Return the config of the run with the device of this machine.

    On a GPU the cache of the run is used: a sweep then decodes the test images once.
    """
    config = override(replace(config, device="auto"), settings)
    of_training = [setting for setting in settings if setting.strip().startswith(("model.", "optim.", "augment."))]
    if of_training:
        raise ValueError(
            f"eval: expected settings of data, device and precision, got {of_training[0]!r}; "
            "a trained network keeps its model, and training settings have no effect."
        )
    if config.data.cache != "gpu" or resolve_device(config.device).type != "cuda":
        config = replace(config, data=replace(config.data, cache="none"))
    asked = any(setting.split("=")[0].strip() == "precision" for setting in settings)
    on_cpu = resolve_device(config.device).type == "cpu"
    return replace(config, precision="fp32") if on_cpu and not asked else config


def _select_split(splits: Splits, split: str, config: RunConfig) -> Split:
    if split == "train":
        return Split(splits.train.source, splits.test.transform, splits.train.indices.tolist())
    if split not in splits.by_name:
        raise ValueError(f"eval: expected a validation split of {config.data.name!r}, got none; use --split test.")
    return splits.by_name[split]
