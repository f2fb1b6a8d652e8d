"""The training loop: one run from its config to its record. Heads are never named here.

Auxiliary losses come out of ``model(x, return_loss=True)``; the loop adds them without knowing which head made them.
"""

import math
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

from ..config import RunConfig
from ..data import Splits, load_splits
from ..metrics import topk_correct
from ..models import create_model
from .descriptors import class_descriptors
from .optim import create_optimizer, create_schedule
from .progress import TrainingProgress
from .record import ARRAYS_FILE, hardware, new_record, write_record

ModelFactory = Callable[[RunConfig, Splits], nn.Module]


def train_run(
    config: RunConfig, folder: str | Path, *, label: str | None = None, build: ModelFactory | None = None
) -> dict[str, Any]:
    """Trains one run, evaluates the last epoch on the test part once, and leaves a record in ``folder``.

    A run that fails leaves a record too, with its error, before the exception goes on.

    Args:
        config: The run.
        folder: Where ``record.json`` and ``arrays.npz`` go.
        label: What the progress display calls the run; by default its pooling.
        build: Makes the model; by default :func:`isice.create_model` with the fields of ``config.model``.

    Returns:
        The record, as written.
    """
    with cpu_threads(config.threads):
        return _recorded(config, Path(folder), label or config.model.pooling, build or build_model)


def _recorded(config: RunConfig, folder: Path, label: str, build: ModelFactory) -> dict[str, Any]:
    record = new_record(config)
    start = time.perf_counter()
    try:
        device = resolve_device(config.device)
        record["hardware"] = hardware(device)
        result = _train(config, folder, device, label, build)
        record |= {"status": "finished", "seconds": time.perf_counter() - start, **result}
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        record |= {"status": "failed", "error": message, "traceback": traceback.format_exc()}
        raise
    finally:
        # An interrupted run leaves nothing behind, so that it is simply run again.
        if record["status"] != "started":
            write_record(folder, record)
    return record


def _train(config: RunConfig, folder: Path, device: torch.device, label: str, build: ModelFactory) -> dict[str, Any]:
    splits = load_splits(config.data)
    seed_everything(config.seed)
    model = build(config, splits).to(device)
    loader = train_loader(config, splits.train)
    held_out = {"val": splits.val, "test": splits.test}
    loaders = {name: eval_loader(config, part) for name, part in held_out.items() if part is not None}
    with TrainingProgress(label, config.optim.epochs, len(loader)) as progress:
        epochs = fit(model, loader, loaders.get("val"), config, device, progress)
    accuracy = {name: evaluate(model, part, config, device) for name, part in loaders.items()}
    arrays = class_descriptors(model, loaders["test"], device, classes=splits.info.classes)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / ARRAYS_FILE, **arrays)  # type: ignore[arg-type]
    return {
        "epochs": epochs,
        "seconds_per_epoch": sum(row["seconds"] for row in epochs) / len(epochs),
        "accuracy": accuracy,
        "reported_epoch": {"epoch": config.optim.epochs, "chosen_on": "none: the last epoch"},
        "images": splits.sizes,
        "parameters": count_parameters(model),
    }


def fit(
    model: nn.Module,
    loader: DataLoader,
    val_loader: DataLoader | None,
    config: RunConfig,
    device: torch.device,
    progress: TrainingProgress,
) -> list[dict[str, Any]]:
    """Trains for ``config.optim.epochs`` epochs; returns one row of numbers per epoch."""
    optimizer = create_optimizer(model, config.optim)
    schedule = create_schedule(optimizer, config.optim, len(loader))
    rows = []
    for epoch in range(1, config.optim.epochs + 1):
        start = time.perf_counter()
        loss_sum, correct, images = 0.0, 0, 0
        model.train()
        for step, (x, target) in enumerate(loader, start=1):
            x, target = x.to(device, non_blocking=True), target.to(device, non_blocking=True)
            with autocast(config, device):
                logits, aux_loss = model(x, return_loss=True)
                loss = cross_entropy(logits.float(), target) + aux_loss
            check_finite(loss, epoch, step, optimizer.param_groups[0]["lr"])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            loss_sum += loss.item() * len(target)
            correct += topk_correct(logits.detach(), target)
            images += len(target)
            progress.step(epoch, len(target), loss_sum / images, correct / images)
        seconds = time.perf_counter() - start
        row = {"epoch": epoch, "train_loss": loss_sum / images, "train_accuracy": correct / images}
        row |= {"seconds": seconds, "images_per_second": images / seconds, "lr": optimizer.param_groups[0]["lr"]}
        if val_loader is not None:
            row["val_accuracy"] = evaluate(model, val_loader, config, device)
        rows.append(row)
        progress.epoch(row)
    return rows


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader, config: RunConfig, device: torch.device) -> float:
    """Top-1 accuracy in [0, 1] over a loader."""
    model.eval()
    correct, images = 0, 0
    for x, target in loader:
        with autocast(config, device):
            logits = model(x.to(device, non_blocking=True))
        correct += topk_correct(logits, target.to(device))
        images += len(target)
    return correct / images


def check_finite(loss: Tensor, epoch: int, step: int, lr: float) -> None:
    """Raises FloatingPointError, with the place, when the loss is not finite."""
    value = loss.item()
    if not math.isfinite(value):
        raise FloatingPointError(
            f"train: expected a finite loss, got {value} at epoch {epoch}, step {step}; "
            f"lower optim.lr (now {lr:.3g}) or look at the batch."
        )


def build_model(config: RunConfig, splits: Splits) -> nn.Module:
    """The network of ``config.model``, with the classes and channels of the data."""
    model = config.model
    return create_model(
        model.backbone,
        pooling=model.pooling,
        num_classes=len(splits.info.classes),
        reduce=model.reduce,
        pretrained=model.pretrained,
        checkpoint_path=model.checkpoint_path,
        in_chans=splits.info.channels,
        img_size=model.img_size or config.data.image_size,
    )


def train_loader(config: RunConfig, part: Dataset) -> DataLoader:
    """Shuffled batches, in an order that the seed alone decides; a ragged last batch is left out."""
    size, images = config.data.batch_size, len(part)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(config.seed)
    return DataLoader(
        part, size, shuffle=True, drop_last=images >= size, num_workers=config.data.workers, generator=generator
    )


def eval_loader(config: RunConfig, part: Dataset) -> DataLoader:
    """All images of a part, in order."""
    return DataLoader(part, config.data.batch_size, num_workers=config.data.workers)


def seed_everything(seed: int) -> None:
    """Seeds every generator that initialisation and augmentation draw from."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  (libraries draw from the global generator)


def autocast(config: RunConfig, device: torch.device) -> torch.autocast:
    """bfloat16 autocast where the config asks for it; heads compute in float32 all the same."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=config.precision == "bf16")


@contextmanager
def cpu_threads(count: int | None) -> Iterator[None]:
    """Computes with ``count`` CPU threads for a while; None leaves the number alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def resolve_device(name: str) -> torch.device:
    """``"auto"`` is the GPU if there is one; a device asked for by name must exist."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"train: expected a device like 'auto', 'cpu' or 'cuda:0', got {name!r}.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"train: expected an available device, got {name!r}, but there is no CUDA; use device=cpu.")
    return device


def count_parameters(model: nn.Module) -> dict[str, int]:
    """Parameters in all and of each part of the network."""
    parts = {name: sum(p.numel() for p in part.parameters()) for name, part in model.named_children()}
    return {"total": sum(p.numel() for p in model.parameters()), **parts}
