"""The table of datasets: what is known about each, checked when it is loaded."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset

from .._checks import suggestion
from ..config import DataConfig
from .digits import load_digits


@dataclass(frozen=True)
class DatasetInfo:
    """One row of the table.

    Attributes:
        classes: Names of the classes, in the order of their labels.
        channels: Channels of an image.
        image_size: Side of an image when the config names none.
        train_size: Images of the training part, before a validation part is held out.
        test_size: Images of the test part.
        source: Where the data come from.
        load: Gives the training and the test part as map-style datasets of (image, label) with their ``targets``.
    """

    classes: tuple[str, ...]
    channels: int
    image_size: int
    train_size: int
    test_size: int
    source: str
    load: Callable[[DataConfig], tuple[Dataset, Dataset]]


@dataclass(frozen=True)
class Splits:
    """The parts of a dataset. ``val`` is None unless a fraction of train was held out; test is for the end only."""

    info: DatasetInfo
    train: Dataset
    val: Dataset | None
    test: Dataset

    @property
    def sizes(self) -> dict[str, int]:
        """The number of images per part."""
        parts = {"train": self.train, "val": self.val, "test": self.test}
        return {name: len(part) for name, part in parts.items() if part is not None}  # type: ignore[arg-type]


DATASETS: dict[str, DatasetInfo] = {
    "digits": DatasetInfo(
        classes=tuple("0123456789"),
        channels=1,
        image_size=8,
        train_size=1347,
        test_size=450,
        source="UCI optical recognition of handwritten digits, as shipped with scikit-learn",
        load=load_digits,
    ),
}


def dataset_info(name: str) -> DatasetInfo:
    """The table row of a dataset; an unknown name is an error with a suggestion.

    Example:
        >>> len(dataset_info("digits").classes)
        10
    """
    if name not in DATASETS:
        raise ValueError(
            f"data: expected one of {', '.join(sorted(DATASETS))}, got {name!r}.{suggestion(name, DATASETS)}"
        )
    return DATASETS[name]


def load_splits(config: DataConfig) -> Splits:
    """Loads a dataset, checks its sizes against the table and holds out a validation part of train if asked.

    The split depends on ``split_seed`` alone, not on the seed of a run, so that all runs see the same parts.

    Example:
        >>> load_splits(DataConfig(name="digits", val_fraction=0.2)).sizes
        {'train': 1078, 'val': 269, 'test': 450}
    """
    info = dataset_info(config.name)
    train, test = info.load(config)
    found = (len(train), len(test))  # type: ignore[arg-type]
    if found != (info.train_size, info.test_size):
        raise ValueError(
            f"data: expected {info.train_size} training and {info.test_size} test images in {config.name!r}, "
            f"got {found[0]} and {found[1]}; the files are incomplete or another version."
        )
    if config.val_fraction == 0.0:
        return Splits(info, train, None, test)
    targets = torch.as_tensor(train.targets)  # type: ignore[attr-defined]
    kept, held = stratified_split(targets, config.val_fraction, config.split_seed)
    return Splits(info, Subset(train, kept), Subset(train, held), test)


def stratified_split(targets: Tensor, fraction: float, seed: int) -> tuple[list[int], list[int]]:
    """Indices (kept, held out), with about ``fraction`` of every class held out and at least one image of it kept."""
    rng = np.random.default_rng(seed)
    kept: list[int] = []
    held: list[int] = []
    for label in targets.unique().tolist():
        members = rng.permutation(np.flatnonzero(targets.numpy() == label)).tolist()
        n_held = min(round(fraction * len(members)), len(members) - 1)
        held += members[:n_held]
        kept += members[n_held:]
    if not held:
        raise ValueError(
            f"data: expected data.val_fraction to hold out at least one image, got {fraction} of {len(targets)} images."
        )
    return sorted(kept), sorted(held)
