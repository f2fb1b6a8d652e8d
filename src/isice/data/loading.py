"""Batches of a part, as the config wants them: through worker processes, or from pixels kept on the GPU."""

from collections.abc import Iterable

import torch
from torch.utils.data import DataLoader

from ..config import DataConfig
from .gpu_cache import GpuBatches
from .parts import Part


def create_loader(
    part: Part, config: DataConfig, batch_sampler: Iterable[list[int]], device: str | torch.device = "cpu"
) -> DataLoader | GpuBatches:
    """Batches (images, labels) of a part, in the order of ``batch_sampler``.

    Args:
        part: The images.
        config: ``cache`` and ``workers`` count here.
        batch_sampler: Gives lists of indices, anew in every epoch: it decides order, sharding and where to resume.
        device: Where the batches go. With ``cache="gpu"`` they are already there; a loader gives CPU tensors,
            in pinned memory for a GPU.

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
    return DataLoader(
        part,
        batch_sampler=batch_sampler,
        num_workers=config.workers,
        pin_memory=device.type == "cuda",
        persistent_workers=config.workers > 0,
        # Its own generator: an epoch must not move the global one, whatever the number of workers.
        generator=torch.Generator().manual_seed(config.split_seed),
    )
