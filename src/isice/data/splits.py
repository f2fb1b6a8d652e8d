"""From a config to the parts that a run gets: loaded, checked against the table, validation held out, transformed."""

import dataclasses
import warnings
from collections.abc import Container
from dataclasses import dataclass

from ..config import DataConfig
from .datasets import DatasetInfo, dataset_info
from .images import find_bad_images, missing_files
from .layouts import Loaded
from .sources import FileSource, Source, Split, stratified_split
from .transforms import Transform, create_transforms


@dataclass(frozen=True)
class Splits:
    """The parts of a dataset. ``val`` is None unless there is a validation part; test is for the end only.

    Attributes:
        info: The table row, with the classes, image size, transform, mean and std that are in use.
        skipped: One line for each unreadable image that was left out.
    """

    info: DatasetInfo
    train: Split
    val: Split | None
    test: Split
    skipped: tuple[str, ...] = ()

    @property
    def sizes(self) -> dict[str, int]:
        """The number of images per part."""
        parts = {"train": self.train, "val": self.val, "test": self.test}
        return {name: len(part) for name, part in parts.items() if part is not None}


def load_splits(config: DataConfig, info: DatasetInfo | None = None) -> Splits:
    """Loads a dataset, checks its sizes against the table and holds out a validation part of train if asked.

    The split depends on ``split_seed`` alone, not on the seed of a run, so that all runs see the same parts.

    Args:
        config: Which dataset, and how.
        info: The row to check against; the one of ``config.name`` in the table unless given.

    Example:
        >>> load_splits(DataConfig(name="digits", val_fraction=0.2)).sizes
        {'train': 1078, 'val': 269, 'test': 450}
    """
    info = info_in_use(config, info)
    loaded = info.load(config)
    info = dataclasses.replace(info, classes=_checked_classes(config, info, loaded))
    train_transform, eval_transform = _transforms(config, info)
    sources, skipped = _readable(config, {"train": loaded.train, "val": loaded.val, "test": loaded.test})
    train, val, test = sources["train"], sources["val"], sources["test"]
    test_part = Split(test, eval_transform)
    if config.val_fraction > 0.0:
        if val is not None:
            raise ValueError("data: expected data.val_fraction=0 where the dataset has a validation part of its own.")
        kept, held = stratified_split(train.targets, config.val_fraction, config.split_seed)
        parts = Split(train, train_transform, kept), Split(train, eval_transform, held), test_part
    else:
        parts = Split(train, train_transform), None if val is None else Split(val, eval_transform), test_part
    if config.cache == "ram":
        for part in filter(None, parts):
            part.cache_in_memory()
    return Splits(info, *parts, skipped)


def info_in_use(config: DataConfig, info: DatasetInfo | None = None) -> DatasetInfo:
    """The row of a dataset, with what the config says instead; classes are known once it is loaded."""
    info = info or dataset_info(config.name)
    if info.n_partitions is not None and config.partition > info.n_partitions:
        raise ValueError(
            f"data: expected data.partition in 1 … {info.n_partitions} for {config.name!r}, got {config.partition}."
        )
    if config.download and not info.downloads:
        raise ValueError(f"data: {config.name!r} has no download; get it ({info.source}) and set data.root.")
    # Not in the config itself: overrides set one field after the other.
    if (config.mean is None) != (config.std is None):
        raise ValueError(f"data: expected data.mean and data.std together, got {config.mean} and {config.std}.")
    named = config.mean is not None
    return dataclasses.replace(
        info,
        image_size=config.image_size or info.image_size,
        transform=info.transform if config.transform == "auto" else config.transform,
        mean=config.mean if named else info.mean,
        std=config.std if named else info.std,
    )


def _checked_classes(config: DataConfig, info: DatasetInfo, loaded: Loaded) -> tuple[str, ...]:
    """The classes, after comparing their number and those of the images with the row."""
    if info.num_classes not in (None, len(loaded.classes)):
        raise ValueError(
            f"data: expected {info.num_classes} classes in {config.name!r}, got {len(loaded.classes)}; "
            "the files are incomplete or another version."
        )
    found = (len(loaded.train), len(loaded.test))
    if any(size not in (None, count) for size, count in zip((info.train_size, info.test_size), found, strict=True)):
        raise ValueError(
            f"data: expected {info.train_size} training and {info.test_size} test images in {config.name!r}, "
            f"got {found[0]} and {found[1]}; the files are incomplete or another version."
        )
    return loaded.classes


def _transforms(config: DataConfig, info: DatasetInfo) -> tuple[Transform, Transform]:
    if info.channels != 3 and (info.transform == "randaugment" or config.color_jitter):
        raise ValueError(
            f"data: expected images of 3 channels for randaugment and color_jitter, got {info.channels} "
            f"in {config.name!r}."
        )
    if info.mean is not None and len(info.mean) != info.channels:
        raise ValueError(f"data: expected {info.channels} values in data.mean and data.std, got {info.mean}.")
    return create_transforms(
        info.transform, info.image_size, mean=info.mean, std=info.std, color_jitter=config.color_jitter
    )


def _readable(config: DataConfig, parts: dict[str, Source | None]) -> tuple[dict[str, Source], tuple[str, ...]]:
    """The parts without unreadable files if they are to be skipped; a file that is not there stops otherwise.

    To skip, every file is decoded once: how many are left must be known before the first epoch, and be the same in all
    processes and after a resumption.
    """
    sources: dict[str, Source] = {}
    skipped: list[str] = []
    for name, source in parts.items():
        if isinstance(source, FileSource) and config.on_bad_image == "skip":
            bad = find_bad_images(source.paths)
            source = _without(source, bad, name) if bad else source
            skipped += bad.values()
        elif isinstance(source, FileSource) and (missing := missing_files(source.paths)):
            raise FileNotFoundError(
                f"data: expected all images of {name} in {config.name!r}, got {len(missing)} missing, "
                f"first {missing[0]!r}; "
                "the files are incomplete, or set data.on_bad_image=skip."
            )
        sources[name] = source  # type: ignore[assignment]
    if skipped:
        warnings.warn(f"data: skipped {len(skipped)} unreadable images; the first: {skipped[0]}", stacklevel=3)
    return sources, tuple(skipped)


def _without(source: FileSource, bad: Container[int], name: str) -> FileSource:
    left = source.keep([index for index in range(len(source)) if index not in bad])
    if emptied := set(source.targets.tolist()) - set(left.targets.tolist()):
        raise ValueError(
            f"data: expected at least one readable image of every class in {name}, got none of {len(emptied)} classes, "
            f"first label {min(emptied)}; repair the files."
        )
    return left
