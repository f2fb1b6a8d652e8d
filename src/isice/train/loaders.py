"""Data loaders whose order depends on seed and epoch alone.

An optimizer step takes ``data.batch_size`` images over all processes and accumulated micro-batches.
Neither their number nor workers or interruptions change which images a step sees.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from .._checks import first_of
from ..config import RunConfig
from ..data.gpu_cache import GpuBatches
from ..data.loading import create_loader
from ..data.sources import Split, mix_seed

Loader = DataLoader[Any] | GpuBatches


class EpochBatches(Sampler[list[int]]):
    """Batch sampler of one process's micro-batches; an incomplete last step is dropped.

    ``batch_size`` images are one optimizer step, over all processes and ``accumulate``
    micro-batches. The seed and the epoch determine the order. With ``weights``, images are drawn
    with replacement, with probabilities proportional to them.
    """

    def __init__(
        self,
        images: int,
        batch_size: int,
        seed: int,
        *,
        accumulate: int = 1,
        rank: int = 0,
        world_size: int = 1,
        weights: Tensor | None = None,
    ) -> None:
        micro_batches = accumulate * world_size
        # A dataset smaller than one batch is one step.
        self.size = min(batch_size, images) // micro_batches
        if self.size == 0 or (batch_size <= images and batch_size % micro_batches):
            raise ValueError(
                f"train: expected data.batch_size to be a multiple of processes × optim.accumulate = {micro_batches}, "
                f"and at least as many images, got {batch_size} and {images} images; choose another batch size."
            )
        self.images, self.seed, self.accumulate, self.weights = images, seed, accumulate, weights
        self.rank, self.world_size = rank, world_size
        self.batch_size = self.size * micro_batches
        self.steps = images // self.batch_size
        self.epoch, self.done = 1, 0

    def start(self, epoch: int, done: int = 0) -> None:
        """Let the next iteration yield ``epoch`` (from 1) without its first ``done`` steps."""
        self.epoch, self.done = epoch, done

    def __len__(self) -> int:
        return (self.steps - self.done) * self.accumulate

    def __iter__(self) -> Iterator[list[int]]:
        order = self.order(self.epoch)
        for step in range(self.done, self.steps):
            for index in range(self.accumulate):
                yield self._slice(order, step, index)

    def order(self, epoch: int) -> list[int]:
        """Return all images in the order of an epoch."""
        generator = torch.Generator().manual_seed(mix_seed(self.seed, epoch))
        if self.weights is None:
            order = torch.randperm(self.images, generator=generator)
        else:
            order = torch.multinomial(self.weights, self.images, replacement=True, generator=generator)
        return order.tolist()

    def micro_batch(self, step: int, index: int = 0) -> list[int]:
        """Return the images of one micro-batch in a step (from 1) of the current epoch."""
        return self._slice(self.order(self.epoch), step - 1, index)

    def _slice(self, order: list[int], step: int, index: int) -> list[int]:
        begin = step * self.batch_size + (index * self.world_size + self.rank) * self.size
        return order[begin : begin + self.size]


def train_loader(
    config: RunConfig, split: Split, device: str | torch.device = "cpu", *, rank: int = 0, world_size: int = 1
) -> Loader:
    """Create the shuffled training loader of one process; :func:`start_epoch` selects the epoch."""
    batches = EpochBatches(
        len(split),
        config.data.batch_size,
        config.seed,
        accumulate=config.optim.accumulate,
        rank=rank,
        world_size=world_size,
        weights=split.targets.bincount().double().reciprocal()[split.targets] if config.data.balanced else None,
    )
    return create_loader(split, config.data, batches, device)


def eval_loader(
    config: RunConfig, split: Split, device: str | torch.device = "cpu", *, rank: int = 0, world_size: int = 1
) -> Loader:
    """Create a loader over every image once, in order, divided among the processes."""
    size = max(config.data.batch_size // (world_size * config.optim.accumulate), 1)
    mine = list(range(rank, len(split), world_size))
    batches = [mine[begin : begin + size] for begin in range(0, len(mine), size)]
    return create_loader(split, config.data, batches, device)


def batch_sampler(loader: Loader) -> EpochBatches:
    """Return the batch sampler of a training loader."""
    batches = loader.batch_sampler
    if not isinstance(batches, EpochBatches):
        raise TypeError(f"train: expected a loader made by train_loader, got one with {type(batches).__name__}.")
    return batches


def start_epoch(loader: Loader, epoch: int, done: int = 0) -> None:
    """Let the next iteration of a loader yield ``epoch`` without its first ``done`` steps."""
    batches = batch_sampler(loader)
    batches.start(epoch, done)
    if isinstance(loader.dataset, Split):
        loader.dataset.set_epoch(epoch, seed=batches.seed)


def describe_images(split: Any, indices: list[int]) -> str:
    """Describe the images of a batch for an error message, with their files if there are any."""
    where = getattr(split, "indices", None)
    path = getattr(getattr(split, "source", None), "path", None)
    named = [f"{i}" if path is None or where is None else f"{i} ({path(int(where[i]))})" for i in indices]
    return first_of(named, 8)
