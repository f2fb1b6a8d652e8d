"""Train one run: from its config to its record."""

import datetime
import gc
import hashlib
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.console import Console
from torch import nn

from .._atomic import write_arrays, write_atomically
from ..config import RunConfig, to_toml
from ..data import Splits, load_splits
from ..data.fingerprint import fingerprint
from ..data.loading import create_loader
from ..models import create_model
from ..models.weights import check_file
from ..records import ARRAYS_FILE, commit, failure, new_record, write_record
from ..run_lock import run_lock
from .backbone_input import follow_backbone_input
from .checkpoint import Checkpoint, load_weights_into, read_checkpoint
from .class_descriptors import class_descriptors, example_indices
from .hardware import hardware, peak_memory
from .launch import cpu_threads, create_fabric, determinism, is_main_process
from .loaders import eval_loader
from .logger import MetricsLogger, WandbLogger
from .optim import describe_schedule
from .progress import SECONDS_BETWEEN_LINES, TrainingProgress, heading
from .resume import check_fingerprint, clear_run, find_checkpoint, find_finished, holds_run
from .scoring import add_evaluation, score
from .timing import PhaseTimer
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
    force: bool = False,
) -> dict[str, Any]:
    """Train one run, evaluate the reported epoch on the test split, and write all files.

    A run that was killed resumes from its last checkpoint and reaches the same result. A finished
    run is not trained again. A run that fails or is interrupted writes a record with its error.
    Invalid input (missing data, unknown pooling) raises before anything is written. The layout of
    the folder is described in :mod:`isice.train.checkpoint`. Unless set, the normalisation of
    images is that of the backbone, and recorded as such. While a run is trained, its folder is
    locked: another process that asks for it gets :class:`isice.run_lock.RunInUse`.

    Args:
        config: The run.
        folder: The run folder.
        label: Name in the progress display, which is then shorter, for one run of many; by default
            the pooling.
        build: Creates the model; by default :func:`build_model`.
        resume: ``"auto"``, ``"must"`` (raise if there is nothing to resume) or ``"never"`` (start
            anew and remove the files of an earlier run). Another config's checkpoint is an error.
        record_refusal: Write a record for invalid input, too, for the report of a sweep.
        force: Resume although the data changed since the checkpoint was written.

    Returns:
        The record, as written.
    """
    folder = Path(folder)
    if not holds_run(folder, config):
        config = follow_backbone_input(config)
    finished = find_finished(folder, config, resume)
    if finished is not None:
        return finished
    # One process of a run holds the lock, the one that writes.
    with run_lock(folder) if is_main_process() else nullcontext():
        finished = find_finished(folder, config, resume)  # by another process, just before the lock was free
        if finished is not None:
            return finished
        checkpoint, timer = find_checkpoint(folder, config, resume), PhaseTimer()

        def prepare(fabric: "Fabric") -> Trainer:
            trainer = _create_trainer(config, folder, fabric, build or build_model, checkpoint, force, timer)
            if resume == "never" and is_main_process():
                clear_run(folder)  # after validation: invalid input must not remove an earlier run
            return trainer

        try:
            with cpu_threads(config.threads), determinism(config.deterministic):
                return _train_and_record(config, folder, label, prepare, record_refusal)
        finally:
            # Collect the cycles of Fabric's wrappers, which hold memory and loader processes.
            gc.collect()


def _train_and_record(
    config: RunConfig, folder: Path, label: str | None, prepare: "Callable[[Fabric], Trainer]", record_refusal: bool
) -> dict[str, Any]:
    record = new_record(config, hardware())
    trainer = None
    try:
        fabric = create_fabric(config, loggers=[] if config.wandb is None else [WandbLogger(config, folder)])
        record["hardware"] = hardware(fabric.device)
        if fabric.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(fabric.device)
        trainer = prepare(fabric)
        _fit(trainer, label)
        record |= {"status": "finished", **_results(trainer)}
    except BaseException as error:
        if trainer is not None or record_refusal:
            _record_failure(folder, record, error)
        raise
    if is_main_process():
        write_record(folder, record)
    return record


def _record_failure(folder: Path, record: dict[str, Any], error: BaseException) -> None:
    if isinstance(error, Exception):
        record |= failure(error)
    else:
        record |= {"status": "interrupted", "error": "interrupted; run it again to go on from the last checkpoint"}
    if is_main_process():
        with suppress(OSError):  # a full disk must not hide the first error
            write_record(folder, record)


def _create_trainer(
    config: RunConfig,
    folder: Path,
    fabric: "Fabric",
    build: ModelFactory,
    checkpoint: Checkpoint | None,
    force: bool,
    timer: PhaseTimer,
) -> Trainer:
    """Load data and model; invalid input raises here, and nothing is written."""
    with timer("data"):
        splits = load_splits(config.data)
    # On a network file system other nodes may read an older checkpoint than rank 0.
    checkpoint = fabric.broadcast(checkpoint)
    with timer("data"):
        data = fingerprint(splits)
    changes = [] if checkpoint is None else check_fingerprint(checkpoint, data, folder, force=force)
    seed_everything(config.seed)
    trainer = Trainer(config, fabric, build(config, splits), splits, folder, checkpoint, data, timer)
    if changes:
        trainer.state.sessions[-1]["data_changed_afterwards"] = changes
    return trainer


def _fit(trainer: Trainer, label: str | None) -> None:
    state, main = trainer.state, trainer.fabric.is_global_zero
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    state.sessions.append({"started": now, "commit": commit(), "epoch": state.done + 1, "step": state.step})
    logger = None
    if main:
        trainer.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(trainer.folder / "config.toml", to_toml(trainer.config))
        logger = MetricsLogger(trainer.folder, state.rows, tensorboard=trainer.config.tensorboard)
    console = Console(stderr=True, quiet=not main)
    done = state.done * trainer.steps + state.step
    for line in heading(trainer.config, trainer.trained, trainer.splits, label):
        console.print(line, highlight=False, markup=False, emoji=False, soft_wrap=True)
    shown, every = label or trainer.config.model.pooling, 0.0 if label is None else SECONDS_BETWEEN_LINES
    try:
        with TrainingProgress(shown, trainer.epochs, trainer.steps, console, done=done, every=every) as progress:
            trainer.fit(progress, logger)
    finally:
        if logger is not None:
            logger.close()
        for one in trainer.fabric.loggers:
            one.finalize("")


def _results(trainer: Trainer) -> dict[str, Any]:
    """Evaluate the reported epoch; return the fields that a finished run adds to its record."""
    splits, rows, fabric, timer = trainer.splits, trainer.state.rows, trainer.fabric, trainer.timer
    with timer("finish"):
        epoch = _load_reported(trainer)
    with timer("evaluate"):
        accuracy = {name: _evaluate(trainer, name, epoch) for name in trainer.held_out}
    with timer("finish"):
        if fabric.is_global_zero:
            write_arrays(trainer.folder / ARRAYS_FILE, **_class_descriptors(trainer))
        trainer.wait_for_checkpoints()
    return {
        "seconds": trainer.seconds(),
        "seconds_outside_epochs": timer.seconds,
        "sessions": trainer.state.sessions,
        "epochs": rows,
        "schedule": describe_schedule(trainer.config.optim),
        "seconds_per_epoch": sum(row["seconds"] for row in rows) / len(rows),
        "peak_memory": peak_memory(fabric.device),
        "processes": fabric.world_size,
        "initialized_from_images": trainer.state.start_images,
        "accuracy": accuracy,
        "reported_epoch": {"epoch": epoch, "chosen_on": _CHOSEN_ON[trainer.selects_on]},
        "images": splits.sizes,
        "skipped_images": list(splits.skipped),
        "parameters": count_parameters(trainer.model),
    }


def _load_reported(trainer: Trainer) -> int:
    """Load the weights of the reported epoch into the model; return that epoch."""
    fabric, best = trainer.fabric, trainer.state.best
    if best is None:
        trainer.save_best()  # written while the model is evaluated
        return trainer.state.done
    epoch = int(best["epoch"])
    if epoch < trainer.state.done:  # otherwise the model still has the weights of that epoch
        weights = read_checkpoint(trainer.folder, "best").weights if fabric.is_global_zero else {}
        load_weights_into(trainer.trained, fabric.broadcast(weights), str(trainer.folder))
    return epoch


def _evaluate(trainer: Trainer, name: str, epoch: int) -> float:
    """Return the accuracy on a split; rank 0 alone evaluates and stores the test scores.

    That on the validation images was computed at the end of the epoch.
    """
    fabric, classes = trainer.fabric, trainer.splits.info.classes
    if name == "val":
        return float(trainer.state.rows[epoch - 1]["val_accuracy"])
    if name != "test" or len(classes) < 2:
        return trainer.evaluate(trainer.held_out[name])[0]
    return fabric.broadcast(_store_scores(trainer, epoch) if fabric.is_global_zero else 0.0)


def _store_scores(trainer: Trainer, epoch: int) -> float:
    config, splits, device = trainer.config, trainer.splits, trainer.fabric.device
    alone = trainer.fabric.world_size == 1
    batches = trainer.held_out["test"] if alone else eval_loader(config, splits.test, device)
    facts = {"split": "test", "which": "best", "epoch": epoch, "flip": config.eval_flip, "settings": []}
    facts["skipped_images"] = len(splits.skipped)
    evaluation = score(trainer.trained.eval(), batches, config, splits.info.classes, device, facts)
    add_evaluation(trainer.folder, evaluation.to_dict())
    return evaluation.scores.top1


def _class_descriptors(trainer: Trainer) -> dict[str, np.ndarray]:
    info, split, device = trainer.splits.info, trainer.splits.test, trainer.fabric.device
    data = replace(trainer.config.data, workers=0)
    batches = create_loader(split, data, example_indices(split.targets), device)
    return class_descriptors(trainer.trained, batches, device, classes=info.classes, mean=info.mean, std=info.std)


def build_model(config: RunConfig, splits: Splits) -> nn.Module:
    """Create the network of ``config.model`` for the data's classes, channels and size."""
    model = config.model
    if model.weights is not None and model.checkpoint_path is not None:
        _check_content(model.checkpoint_path, model.weights)
    return create_model(
        model.backbone,
        pooling=model.pooling,
        num_classes=len(splits.info.classes),
        reduce=model.reduce,
        pretrained=model.pretrained,
        checkpoint_path=model.checkpoint_path,
        strict=model.strict,
        in_chans=splits.info.channels,
        img_size=model.img_size or splits.info.image_size,
        **({"drop_path_rate": model.drop_path} if model.drop_path else {}),
    )


def _check_content(path: str, digest: str) -> None:
    with check_file(path).open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if not found.startswith(digest):
        raise ValueError(
            f"train: expected weights with the SHA-256 {digest}… in {path!r}, got {found[: len(digest)]}…; "
            "use the file that the run was made for, or start another run."
        )


def seed_everything(seed: int) -> None:
    """Seed the generators that model initialisation draws from."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  (libraries draw from the global generator)


def count_parameters(model: nn.Module) -> dict[str, int]:
    """Return the number of parameters of the model and of each child module."""
    parts = {name: sum(p.numel() for p in part.parameters()) for name, part in model.named_children()}
    return {"total": sum(p.numel() for p in model.parameters()), **parts}
