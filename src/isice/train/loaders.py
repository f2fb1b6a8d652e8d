"""Batches in an order that is a function of seed and epoch alone: not of processes, workers, portions or interruptions.

A step takes ``data.batch_size`` images, whatever the number of processes and of accumulated portions: each process
gets its share of the same images, so that more machines compute the same thing.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Sampler

from ..config import RunConfig
from ..data.gpu_cache import GpuBatches
from ..data.loading import create_loader
from ..data.sources import Split, mix_seed

Loader = DataLoader | GpuBatches


class EpochBatches(Sampler[list[int]]):
    """Yields this process's portions of every step of an epoch; images that do not fill a step are left out.

    Args:
        images: Number of images.
        batch_size: Images per step, over all processes and portions.
        seed: With the epoch, decides the order.
        accumulate: Portions per step.
        rank: Number of this process.
        world_size: Number of processes.
    """

    def __init__(
        self, images: int, batch_size: int, seed: int, *, accumulate: int = 1, rank: int = 0, world_size: int = 1
    ) -> None:
        shares = accumulate * world_size
        # A set smaller than one batch is one step of (nearly) all its images.
        self.share = min(batch_size, images) // shares
        if self.share == 0 or (batch_size <= images and batch_size % shares):
            raise ValueError(
                f"train: expected data.batch_size to be a multiple of processes × optim.accumulate = {shares}, and as "
                f"many images, got {batch_size} and {images} images; choose another batch size."
            )
        self.images, self.seed, self.accumulate = images, seed, accumulate
        self.rank, self.world_size = rank, world_size
        self.batch_size = self.share * shares
        self.steps = images // self.batch_size
        self.epoch, self.done = 1, 0

    def start(self, epoch: int, done: int = 0) -> None:
        """What the next iteration yields: ``epoch`` (from 1), without its first ``done`` steps."""
        self.epoch, self.done = epoch, done

    def __len__(self) -> int:
        return (self.steps - self.done) * self.accumulate

    def __iter__(self) -> Iterator[list[int]]:
        order = self.order(self.epoch)
        for step in range(self.done, self.steps):
            for portion in range(self.accumulate):
                begin = step * self.batch_size + (portion * self.world_size + self.rank) * self.share
                yield order[begin : begin + self.share]

    def order(self, epoch: int) -> list[int]:
        """All images in the order of an epoch."""
        generator = torch.Generator().manual_seed(mix_seed(self.seed, epoch))
        return torch.randperm(self.images, generator=generator).tolist()

    def portion(self, step: int, portion: int = 0) -> list[int]:
        """The images that this process gets in a step (from 1) of the current epoch."""
        begin = (step - 1) * self.batch_size + (portion * self.world_size + self.rank) * self.share
        return self.order(self.epoch)[begin : begin + self.share]


def train_loader(
    config: RunConfig, part: Split, device: str | torch.device = "cpu", *, rank: int = 0, world_size: int = 1
) -> Loader:
    """Shuffled batches for one process; :func:`start_epoch` says which epoch comes."""
    batches = EpochBatches(
        len(part),
        config.data.batch_size,
        config.seed,
        accumulate=config.optim.accumulate,
        rank=rank,
        world_size=world_size,
    )
    return create_loader(part, config.data, batches, device)


def eval_loader(
    config: RunConfig, part: Split, device: str | torch.device = "cpu", *, rank: int = 0, world_size: int = 1
) -> Loader:
    """Every image of a part once, in order, shared out over the processes."""
    size = max(config.data.batch_size // (world_size * config.optim.accumulate), 1)
    mine = list(range(rank, len(part), world_size))
    batches = [mine[begin : begin + size] for begin in range(0, len(mine), size)]
    return create_loader(part, config.data, batches, device)


def batches_of(loader: Loader) -> EpochBatches:
    """The sampler of a training loader."""
    batches = loader.batch_sampler
    if not isinstance(batches, EpochBatches):
        raise TypeError(f"train: expected a loader made by train_loader, got one with {type(batches).__name__}.")
    return batches


def start_epoch(loader: Loader, epoch: int, done: int = 0) -> None:
    """Makes the next iteration of a training loader that of ``epoch``, without its first ``done`` steps."""
    batches = batches_of(loader)
    batches.start(epoch, done)
    if isinstance(loader.dataset, Split):
        loader.dataset.set_epoch(epoch, seed=batches.seed)


def describe_images(part: Any, indices: list[int], limit: int = 8) -> str:
    """The images of a batch, by file where there are files, for an error message."""
    where = getattr(part, "indices", None)
    path = getattr(getattr(part, "source", None), "path", None)
    named = [f"{i}" if path is None or where is None else f"{i} ({path(int(where[i]))})" for i in indices[:limit]]
    return ", ".join(named) + (f" and {len(indices) - limit} more" if len(indices) > limit else "")
