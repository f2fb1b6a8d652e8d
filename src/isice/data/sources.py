"""Sources of images (files or tensors), and splits: images of a source with their transform."""

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
    """Images by index, and their labels (N,)."""

    targets: Tensor

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Tensor: ...


class FileSource:
    """Image files, decoded on access.

    The paths are one array, which worker processes share. A list of strings would be copied into
    each process, because reference counts change its memory pages.
    """

    def __init__(self, paths: Sequence[str], targets: Sequence[int] | Tensor) -> None:
        self._paths = np.array([os.fsencode(path) for path in paths])
        self.targets = torch.as_tensor(targets, dtype=torch.int64)

    @property
    def paths(self) -> list[str]:
        """All paths, in order."""
        return [os.fsdecode(path) for path in self._paths.tolist()]

    def path(self, index: int) -> str:
        """Return the path of one image."""
        return os.fsdecode(self._paths[index].item())

    def keep(self, indices: Sequence[int]) -> "FileSource":
        """Return a source of the images at ``indices``."""
        return FileSource([self.path(index) for index in indices], self.targets[list(indices)])

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> Tensor:
        return read_image(self.path(index))


class TensorSource:
    """Images (N, C, H, W) in a tensor."""

    def __init__(self, images: Tensor, targets: Tensor) -> None:
        self.images, self.targets = images, targets

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> Tensor:
        return self.images[index]


class Split(Dataset[tuple[Tensor, int]]):
    """A map-style dataset of (image float32 (C, H, W), label): transformed images of a source.

    Random transforms draw from torch's global generator. After :meth:`set_epoch` they depend on
    seed, epoch and image only, not on the number of workers, the order or interruptions.

    Args:
        source: The images.
        transform: Maps an image to the network's input.
        indices: Images of the source that belong to the split; all by default.

    Attributes:
        targets: Labels (N,).
    """

    def __init__(self, source: Source, transform: Transform, indices: Sequence[int] | None = None) -> None:
        self.source, self.transform = source, transform
        self.indices = torch.arange(len(source)) if indices is None else torch.as_tensor(indices, dtype=torch.int64)
        self.targets = source.targets[self.indices]
        self._cached: Tensor | None = None
        # In shared memory, so that persistent workers see a new epoch.
        self._epoch = torch.full((2,), -1, dtype=torch.int64).share_memory_()

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        prepared = self.prepared(index)
        with self._randomness(index):
            return self.transform.augmented(prepared), int(self.targets[index])

    def set_epoch(self, epoch: int, *, seed: int = 0) -> None:
        """Seed the random transforms of every image by ``seed``, ``epoch`` and image."""
        self._epoch[0], self._epoch[1] = epoch, seed

    @property
    def epoch(self) -> tuple[int, int] | None:
        """Epoch and seed of :meth:`set_epoch`, or None."""
        epoch, seed = self._epoch.tolist()
        return None if epoch < 0 else (epoch, seed)

    def prepared(self, index: int) -> Tensor:
        """Return one image after the deterministic steps of the transform."""
        if self._cached is not None:
            return self._cached[index]
        image = self.source[int(self.indices[index])]
        return image if self.transform.prepare is None else self.transform.prepare(image)

    def unfinished(self) -> "Split":
        """Return the split without its ``finish`` step; epoch and cache are shared."""
        split = copy.copy(self)
        split.transform = dataclasses.replace(self.transform, finish=None)
        return split

    def cache_in_memory(self) -> None:
        """Decode and prepare every image now, into one tensor that all workers share."""
        self._cached = stack_prepared(self).share_memory_()

    @contextmanager
    def _randomness(self, index: int) -> Iterator[None]:
        if self.epoch is None or not self.transform.augment:
            yield
            return
        # torch.manual_seed would also queue a call for every CUDA device.
        generator = torch.default_generator
        state = generator.get_state()
        generator.manual_seed(mix_seed(*self.epoch, int(self.indices[index])))
        try:
            yield
        finally:
            generator.set_state(state)


def mix_seed(*numbers: int) -> int:
    """Hash several numbers to one seed."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def stack_prepared(split: Split) -> Tensor:
    """Decode all images of a split in a thread pool; return the prepared images (N, C, H, W)."""
    if split.transform.prepare is None:
        raise ValueError(
            "data: expected a transform that resizes all images to one size before caching, got random crops; "
            "use data.transform=paper (or none), or data.cache=none."
        )
    first = split.prepared(0)
    stacked = torch.empty(len(split), *first.shape, dtype=first.dtype)

    def fill(index: int) -> None:
        stacked[index] = split.prepared(index)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(fill, range(len(split))):
            pass
    return stacked


def stratified_split(targets: Tensor, fraction: float, seed: int) -> tuple[list[int], list[int]]:
    """Split indices into (kept, held out), with about ``fraction`` of every class held out.

    At least one image of every class is kept.
    """
    rng = np.random.default_rng(seed)
    labels = targets.numpy()
    # One sort, because a search per class takes minutes for thousands of classes.
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
            f"data: expected data.val_fraction to hold out an image, got {fraction} of {len(targets)} images; raise it."
        )
    return sorted(kept), sorted(held)
