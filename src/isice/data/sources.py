"""Where images come from (files or tensors), and a part of them with its transform: what a data loader is given."""

import copy
import dataclasses
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from .images import read_image
from .transforms import Transform


class Source(Protocol):
    """Pictures by index, and their labels (N,)."""

    targets: Tensor

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Tensor: ...


class FileSource:
    """Image files, decoded when asked for.

    Paths are held as one array: a list of a million strings would be copied into every worker process.
    """

    def __init__(self, paths: Sequence[str], targets: Sequence[int] | Tensor) -> None:
        self._paths = np.array([os.fsencode(path) for path in paths])
        self.targets = torch.as_tensor(targets, dtype=torch.int64)

    @property
    def paths(self) -> list[str]:
        """All files, in order."""
        return [os.fsdecode(path) for path in self._paths.tolist()]

    def path(self, index: int) -> str:
        """The file of one image."""
        return os.fsdecode(self._paths[index].item())

    def keep(self, indices: Sequence[int]) -> "FileSource":
        """The source with these images only."""
        return FileSource([self.path(index) for index in indices], self.targets[list(indices)])

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> Tensor:
        return read_image(self.path(index))


class TensorSource:
    """Images (N, C, H, W) held as a tensor."""

    def __init__(self, images: Tensor, targets: Tensor) -> None:
        self.images, self.targets = images, targets

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> Tensor:
        return self.images[index]


class Split(Dataset):
    """Some images of a source, transformed: a map-style dataset of (image float32 (C, H, W), label).

    Random transforms draw from torch's global generator until :meth:`set_epoch` is called; from then on what happens to
    an image depends on seed, epoch and image alone, not on workers, order or interruptions.

    Attributes:
        targets: Labels (N,).
        transform: From picture to input.
    """

    def __init__(self, source: Source, transform: Transform, indices: Sequence[int] | None = None) -> None:
        self.source, self.transform = source, transform
        self.indices = torch.arange(len(source)) if indices is None else torch.as_tensor(indices, dtype=torch.int64)
        self.targets = source.targets[self.indices]
        self._cached: Tensor | None = None
        # In shared memory, so that workers that outlive an epoch see the next one.
        self._epoch = torch.full((2,), -1, dtype=torch.int64).share_memory_()

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        prepared = self.prepared(index)
        with self._randomness(index):
            return self.transform.augmented(prepared), int(self.targets[index])

    def set_epoch(self, epoch: int, *, seed: int = 0) -> None:
        """Makes the random transforms a function of ``seed``, ``epoch`` and image."""
        self._epoch[0], self._epoch[1] = epoch, seed

    @property
    def epoch(self) -> tuple[int, int] | None:
        """Epoch and seed as set, or None."""
        epoch, seed = self._epoch.tolist()
        return None if epoch < 0 else (epoch, seed)

    def prepared(self, index: int) -> Tensor:
        """One picture after the deterministic steps, cached or not."""
        if self._cached is not None:
            return self._cached[index]
        image = self.source[int(self.indices[index])]
        return image if self.transform.prepare is None else self.transform.prepare(image)

    def unfinished(self) -> "Split":
        """The same part, epoch and cache included, that gives pixels: who takes them converts and normalises."""
        part = copy.copy(self)
        part.transform = dataclasses.replace(self.transform, finish=None)
        return part

    def cache_in_memory(self, threads: int | None = None) -> None:
        """Decodes and prepares every picture now and keeps it, as one tensor that all workers share."""
        self._cached = stack_prepared(self, threads).share_memory_()

    @contextmanager
    def _randomness(self, index: int) -> Iterator[None]:
        if self.epoch is None or not self.transform.augment:
            yield
            return
        # Not torch.manual_seed: it would queue a call for every CUDA device too, once per image.
        generator = torch.default_generator
        state = generator.get_state()
        generator.manual_seed(mix_seed(*self.epoch, int(self.indices[index])))
        try:
            yield
        finally:
            generator.set_state(state)


def mix_seed(*numbers: int) -> int:
    """One seed from several numbers, with no relation between the seeds of neighbouring numbers.

    Example:
        >>> mix_seed(0, 1) != mix_seed(1, 0)
        True
    """
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def stack_prepared(part: Split, threads: int | None = None) -> Tensor:
    """All prepared pictures of a part as one tensor (N, C, H, W), decoded by a pool of threads."""
    if part.transform.prepare is None:
        raise ValueError(
            "data: expected a transform that gives all pictures one size, to cache them, got one that crops at random; "
            "use data.transform=paper (or none), or data.cache=none."
        )
    first = part.prepared(0)
    stacked = torch.empty(len(part), *first.shape, dtype=first.dtype)

    def fill(index: int) -> None:
        stacked[index] = part.prepared(index)

    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        for _ in pool.map(fill, range(len(part))):
            pass
    return stacked


def stratified_split(targets: Tensor, fraction: float, seed: int) -> tuple[list[int], list[int]]:
    """Indices (kept, held out), with about ``fraction`` of every class held out and at least one image of it kept.

    Example:
        >>> import torch
        >>> kept, held = stratified_split(torch.tensor([0] * 8 + [1] * 4), 0.25, seed=0)
        >>> len(kept), len(held)
        (9, 3)
    """
    rng = np.random.default_rng(seed)
    labels = targets.numpy()
    # One sort for all classes: a search per class would take minutes for thousands of classes.
    members_by_class = np.split(np.argsort(labels, kind="stable"), np.flatnonzero(np.diff(np.sort(labels))) + 1)
    kept: list[int] = []
    held: list[int] = []
    for members in members_by_class:
        shuffled = rng.permutation(members).tolist()
        n_held = min(round(fraction * len(shuffled)), len(shuffled) - 1)
        held += shuffled[:n_held]
        kept += shuffled[n_held:]
    if not held:
        raise ValueError(
            f"data: expected data.val_fraction to hold out at least one image, got {fraction} of {len(targets)} images."
        )
    return sorted(kept), sorted(held)
