"""One run, from its config to its record."""

import datetime
import gc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.console import Console
from torch import nn

from ..config import RunConfig, to_toml
from ..data import Splits, load_splits
from ..models import create_model
from ..records import ARRAYS_FILE, commit, failure, new_record, write_atomically, write_record
from .checkpoint import Checkpoint, load_weights_into, read_checkpoint
from .class_descriptors import class_descriptors
from .hardware import hardware
from .launch import cpu_threads, create_fabric, determinism, is_main_process, peak_memory
from .logger import MetricsLogger
from .progress import TrainingProgress
from .resume import clear_run, find_start
from .trainer import Trainer

if TYPE_CHECKING:
    from lightning_fabric import Fabric

ModelFactory = Callable[[RunConfig, Splits], nn.Module]
_CHOSEN_ON = {"val": "the validation part", "last": "none: the last epoch", "test": "the test part, as asked for"}


def train_run(
    config: RunConfig,
    folder: str | Path,
    *,
    label: str | None = None,
    build: ModelFactory | None = None,
    resume: str = "auto",
    record_refusal: bool = False,
) -> dict[str, Any]:
    """Trains one run, evaluates the reported epoch on the test part, and leaves everything in ``folder``.

    Killed at any moment, it goes on from its last checkpoint when called again, to the same result; a finished run is
    not trained again. A run that fails or is interrupted leaves a record too, with its error, before the exception
    goes on; one that is refused before it begins (no such data, no such head) leaves the folder as it was. The layout
    of the folder is described in :mod:`isice.train.checkpoint`.

    Args:
        config: The run.
        folder: Where the run's files go.
        label: What the progress display calls the run; by default its pooling.
        build: Makes the model; by default :func:`isice.create_model` with the fields of ``config.model``.
        resume: ``"auto"``, ``"must"`` (a folder with nothing to resume is an error) or ``"never"`` (start anew, and
            remove what an earlier run left there). A checkpoint of another config is an error.
        record_refusal: Leave a record of a refused run too, so that the report of a sweep can name it.

    Returns:
        The record, as written.
    """
    folder = Path(folder)
    start = find_start(folder, config, resume)
    if start.finished is not None:
        return start.finished

    def prepare(fabric: "Fabric") -> Trainer:
        trainer = _prepare(config, folder, fabric, build or build_model, start.checkpoint)
        if resume == "never" and is_main_process():
            clear_run(folder)  # only now: wrong input must not cost an earlier run
        return trainer

    try:
        with cpu_threads(config.threads), determinism(config.deterministic):
            return _recorded(config, folder, label or config.model.pooling, prepare, record_refusal)
    finally:
        # Wrapped models refer to themselves: without this, memory and loader processes would stay for the next run.
        gc.collect()


def _recorded(
    config: RunConfig, folder: Path, label: str, prepare: "Callable[[Fabric], Trainer]", record_refusal: bool
) -> dict[str, Any]:
    record = new_record(config, hardware())
    begun = False
    try:
        fabric = create_fabric(config)
        record["hardware"] = hardware(fabric.device)
        if fabric.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(fabric.device)
        trainer = prepare(fabric)
        begun = True
        record |= {"status": "finished", **_train(trainer, label)}
    except BaseException as error:
        if begun or record_refusal:
            _record_failure(folder, record, error)
        raise
    if is_main_process():
        write_record(folder, record)
    return record


def _record_failure(folder: Path, record: dict[str, Any], error: BaseException) -> None:
    """Notes why a run stopped; on a disk without room for that the error alone must do."""
    if isinstance(error, Exception):
        record |= failure(error)
    else:
        record |= {"status": "interrupted", "error": "interrupted; run it again to go on from the last checkpoint"}
    if is_main_process():
        with suppress(OSError):
            write_record(folder, record)


def _prepare(
    config: RunConfig, folder: Path, fabric: "Fabric", build: ModelFactory, checkpoint: Checkpoint | None
) -> Trainer:
    """Reads data and model, which is where wrong input shows; nothing is written."""
    splits = load_splits(config.data)
    seed_everything(config.seed)
    model = build(config, splits)
    if fabric.world_size > 1:
        # A network file system may show the other nodes an older state than the one the first process wrote.
        checkpoint = fabric.broadcast(checkpoint)
    return Trainer(config, fabric, model, splits, folder, checkpoint)


def _train(trainer: Trainer, label: str) -> dict[str, Any]:
    config, folder, fabric = trainer.config, trainer.folder, trainer.fabric
    position = trainer.position
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    position.sessions.append({"started": now, "commit": commit(), "epoch": position.done + 1, "step": position.step})
    logger = _open_folder(config, folder, position.rows) if fabric.is_global_zero else None
    console = Console(stderr=True, quiet=not fabric.is_global_zero)
    done = position.done * trainer.steps + position.step
    try:
        with TrainingProgress(label, trainer.epochs, trainer.steps, console, done=done) as progress:
            trainer.fit(progress, logger)
    finally:
        if logger is not None:
            logger.close()
    return _result(trainer)


def _open_folder(config: RunConfig, folder: Path, rows: list[dict[str, Any]]) -> MetricsLogger:
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "config.toml", to_toml(config))
    return MetricsLogger(folder, rows, tensorboard=config.tensorboard)


def _result(trainer: Trainer) -> dict[str, Any]:
    """What a record says about a run that came to its end; loads the reported epoch and evaluates it."""
    splits, rows, fabric = trainer.splits, trainer.position.rows, trainer.fabric
    epoch = _load_reported(trainer)
    accuracy = {name: trainer.evaluate(loader) for name, loader in trainer.held_out.items()}
    if fabric.is_global_zero:
        arrays = class_descriptors(trainer.trained, splits.test, fabric.device, classes=splits.info.classes)
        np.savez_compressed(trainer.folder / ARRAYS_FILE, **arrays)  # type: ignore[arg-type]
    return {
        "seconds": trainer.seconds(),
        "sessions": trainer.position.sessions,
        "epochs": rows,
        "seconds_per_epoch": sum(row["seconds"] for row in rows) / len(rows),
        "peak_memory": peak_memory(fabric.device),
        "processes": fabric.world_size,
        "accuracy": accuracy,
        "reported_epoch": {"epoch": epoch, "chosen_on": _CHOSEN_ON[trainer.selects_on]},
        "images": splits.sizes,
        "skipped_images": list(splits.skipped),
        "parameters": count_parameters(trainer.model),
    }


def _load_reported(trainer: Trainer) -> int:
    """Puts the weights of the reported epoch into the model; returns that epoch."""
    fabric, best = trainer.fabric, trainer.position.best
    if best is None:
        trainer.save_best()
        return trainer.position.done
    weights = read_checkpoint(trainer.folder, "best").weights if fabric.is_global_zero else None
    if fabric.world_size > 1:
        weights = fabric.broadcast(weights)
    load_weights_into(trainer.trained, weights or {}, str(trainer.folder))
    return best["epoch"]


def build_model(config: RunConfig, splits: Splits) -> nn.Module:
    """The network of ``config.model``, with the classes, channels and image size of the data."""
    model = config.model
    return create_model(
        model.backbone,
        pooling=model.pooling,
        num_classes=len(splits.info.classes),
        reduce=model.reduce,
        pretrained=model.pretrained,
        checkpoint_path=model.checkpoint_path,
        in_chans=splits.info.channels,
        img_size=model.img_size or splits.info.image_size,
    )


def seed_everything(seed: int) -> None:
    """Seeds every generator that the initialisation of a model may draw from."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  (libraries draw from the global generator)


def count_parameters(model: nn.Module) -> dict[str, int]:
    """Parameters in all and of each part of the network."""
    parts = {name: sum(p.numel() for p in part.parameters()) for name, part in model.named_children()}
    return {"total": sum(p.numel() for p in model.parameters()), **parts}
