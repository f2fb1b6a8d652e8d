"""Batches of a part, as the config wants them: through worker processes, or from pixels kept on the GPU."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ..config import DataConfig
from .gpu_cache import GpuBatches
from .sources import Split


class DeviceLoader(DataLoader):
    """A loader whose workers hand over uint8 pixels, a quarter of the bytes; the device converts and normalises them.

    Args:
        part: The images.
        device: Where the batches are made.
        options: As for ``DataLoader``.
    """

    def __init__(self, part: Split, device: torch.device, **options: Any) -> None:
        super().__init__(part.unfinished(), **options)
        self.device, self.finish = device, part.transform.finish

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:  # type: ignore[override]
        for pixels, labels in super().__iter__():
            pixels = pixels.to(self.device, non_blocking=True)
            yield pixels if self.finish is None else self.finish(pixels), labels.to(self.device, non_blocking=True)


def create_loader(
    part: Split, config: DataConfig, batch_sampler: Iterable[list[int]], device: str | torch.device = "cpu"
) -> DataLoader | GpuBatches:
    """Batches (images, labels) of a part, in the order of ``batch_sampler``.

    Args:
        part: The images.
        config: ``cache`` and ``workers`` count here.
        batch_sampler: Gives lists of indices, anew in every epoch: it decides order, sharding and where to resume.
        device: Where the batches are wanted, and are.

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
        return GpuBatches(part, batch_sampler, device)
    options: dict[str, Any] = {
        "batch_sampler": batch_sampler,
        "num_workers": config.workers,
        "persistent_workers": config.workers > 0,
        # Its own generator: an epoch must not move the global one, whatever the number of workers.
        "generator": torch.Generator().manual_seed(config.split_seed),
    }
    if device.type == "cuda":
        return DeviceLoader(part, device, pin_memory=True, **options)
    return DataLoader(part, **options)
