"""Batches of a split, from worker processes or from pixels cached on the GPU."""

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ..config import DataConfig
from .gpu_cache import GpuBatches
from .sources import Split


class DeviceLoader(DataLoader[tuple[Tensor, int]]):
    """A loader whose workers return uint8 pixels; the device converts and normalises them.

    Transferring uint8 instead of float32 takes a quarter of the bandwidth.
    """

    def __init__(self, split: Split, device: torch.device, **options: Any) -> None:
        super().__init__(split.unfinished(), **options)
        self.device, self.finish = device, split.transform.finish

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:  # type: ignore[override]
        for pixels, labels in super().__iter__():
            pixels = pixels.to(self.device, non_blocking=True)
            yield pixels if self.finish is None else self.finish(pixels), labels.to(self.device, non_blocking=True)


def create_loader(
    split: Split, config: DataConfig, batch_sampler: Iterable[list[int]], device: str | torch.device = "cpu"
) -> DataLoader[tuple[Tensor, int]] | GpuBatches:
    """Return a loader of batches (images, labels) in the order of ``batch_sampler``.

    Args:
        split: The images.
        config: ``cache`` and ``workers`` are used.
        batch_sampler: Yields lists of indices, once per epoch: order, sharding and resuming.
        device: Device of the batches.

    Example:
        >>> from isice.data import load_splits
        >>> config = DataConfig("digits")
        >>> loader = create_loader(load_splits(config).train, config, [[0, 1, 2], [3, 4, 5]])
        >>> [len(labels) for _, labels in loader]
        [3, 3]
    """
    device = torch.device(device)
    if config.cache == "gpu":
        if device.type != "cuda":
            raise ValueError(f"data: expected a CUDA device for data.cache=gpu, got {str(device)!r}; use cache=ram.")
        return GpuBatches(split, batch_sampler, device)
    options: dict[str, Any] = {
        "batch_sampler": batch_sampler,
        "num_workers": config.workers,
        "persistent_workers": config.workers > 0,
        # A separate generator, because the loader draws from it once per epoch.
        "generator": torch.Generator().manual_seed(config.split_seed),
        # Workers of a fork server, the default from Python 3.14 on, outlive a killed process.
        "multiprocessing_context": "fork" if config.workers and sys.platform == "linux" else None,
    }
    if device.type == "cuda":
        return DeviceLoader(split, device, pin_memory=True, **options)
    return DataLoader(split, **options)
