"""Cost of runs on this machine, extrapolated from a few steps of each distinct network."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from ...config import DataConfig, RunConfig
from ...data.augmentation import crop_side
from ...data.splits import info_in_use, load_splits
from ...models import create_model
from ...train.launch import cpu_threads, resolve_device
from ...train.loaders import EpochBatches
from ._measure import median_seconds, peak_bytes, training_step
from .frozen import FrozenConfig

# Images of a measured step on a CPU, where time is proportional to their number.
_CPU_BATCH = 4
_REPEATS = 3
# A forward pass takes about a third of a training step.
_FORWARD = 1 / 3


@dataclass(frozen=True)
class Cost:
    """Cost of one run: of its training, or of a pass over the images of a frozen network."""

    images: int | None  # training images; None if the dataset is not there and has no fixed size
    step_seconds: float | None  # time of an optimizer step, or a batch; None if it ran out of memory
    gib: float | None  # peak GPU memory of a step with the images cached on the GPU; None on a CPU
    seconds: float | None  # time of all steps and evaluations, without loading images; None if unknown


def estimate_costs(configs: Iterable[RunConfig], tell: Callable[[str], None] = lambda line: None) -> list[Cost]:
    """Return the cost of every run; equal network, image size and batch are measured once."""
    steps: dict[tuple[Any, ...], tuple[float | None, float | None]] = {}
    sizes: dict[DataConfig, dict[str, int] | None] = {}
    found = []
    for config in configs:
        data = replace(config.data, cache="none", on_bad_image="stop")
        if data not in sizes:
            sizes[data] = _sizes(data)
        key = _key(config)
        if key not in steps:
            tell(f"measuring {config.model.backbone}, {config.model.pooling}, {_training_size(config)} px")
            with cpu_threads(config.threads):
                steps[key] = _measure(config)
        found.append(_cost(config, sizes[data], *steps[key]))
    return found


def _key(config: RunConfig) -> tuple[Any, ...]:
    info, model = info_in_use(config.data), config.model
    network = (model.backbone, model.pooling, model.reduce, _training_size(config), info.channels, info.num_classes)
    return (
        type(config),
        *network,
        config.data.batch_size,
        config.optim.accumulate,
        config.precision,
        config.channels_last,
    )


def _image_size(config: RunConfig) -> int:
    return config.model.img_size or info_in_use(config.data).image_size


def _training_size(config: RunConfig) -> int:
    size = _image_size(config)
    return size if isinstance(config, FrozenConfig) else crop_side(size, config.augment.crop_size)


def _sizes(data: DataConfig) -> dict[str, int] | None:
    """Return images per split from the files, else from the table of datasets."""
    info = info_in_use(data)
    try:
        return load_splits(data).sizes
    except (ValueError, OSError):
        if info.train_size is None or info.test_size is None:
            return None
    held_out = round(data.val_fraction * info.train_size)
    return {"train": info.train_size - held_out, "val": held_out, "test": info.test_size}


def _measure(config: RunConfig) -> tuple[float | None, float | None]:
    """Return seconds of one step and its peak memory in GiB on a GPU."""
    device = resolve_device(config.device)
    micro_batch = max(config.data.batch_size // config.optim.accumulate, 1)
    batch = micro_batch if device.type == "cuda" else min(micro_batch, _CPU_BATCH)
    try:
        step = _step(config, batch, device)
        seconds, _ = median_seconds(step, device, _REPEATS)
        peak = peak_bytes(step, device)
    except torch.OutOfMemoryError:
        return None, None
    return seconds * config.data.batch_size / batch, None if peak is None else peak / 2**30


def _step(config: RunConfig, batch: int, device: torch.device) -> Callable[[], object]:
    """Return a training step or, for a frozen network, the forward pass of a batch."""
    info, model, size = info_in_use(config.data), config.model, _training_size(config)
    classes, layout = info.num_classes or 100, torch.channels_last if config.channels_last else torch.preserve_format
    network = create_model(
        model.backbone,
        pooling=model.pooling,
        num_classes=classes,
        reduce=model.reduce,
        in_chans=info.channels,
        img_size=size,
    )
    network = network.to(device, memory_format=layout).train()  # type: ignore[call-overload]
    x = torch.rand(batch, info.channels, size, size, device=device).to(memory_format=layout)
    if isinstance(config, FrozenConfig):
        return torch.no_grad()(partial(network.eval(), x))
    return training_step(network, x, torch.randint(classes, (batch,), device=device), config.precision)


def _cost(config: RunConfig, sizes: dict[str, int] | None, step: float | None, gib: float | None) -> Cost:
    if sizes is None or step is None:
        return Cost(None if sizes is None else sizes["train"], step, gib, None)
    optim, batch = config.optim, config.data.batch_size
    pixels = sum(sizes.values()) * info_in_use(config.data).channels * _image_size(config) ** 2
    held = pixels / 2**30 if config.data.cache == "gpu" else 0.0
    memory = None if gib is None else gib + held
    if isinstance(config, FrozenConfig):
        return Cost(sizes["train"], step, memory, (sizes["train"] + sizes["test"]) * step / batch)
    steps = EpochBatches(sizes["train"], batch, 0, accumulate=optim.accumulate).steps
    more_pixels = (_image_size(config) / _training_size(config)) ** 2  # evaluation is at the full size
    per_image = _FORWARD * step / batch * more_pixels * (2 if config.eval_flip else 1)
    evaluated = sizes.get("val", 0) + (sizes["test"] if config.select_on == "test" else 0)
    epoch = steps * step + evaluated * per_image
    seconds = (optim.epochs + optim.head_epochs) * epoch + sizes["test"] * per_image
    return Cost(sizes["train"], step, memory, seconds)
