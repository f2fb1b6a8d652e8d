"""Load the splits of a dataset: verify them, hold out validation images, set the transforms."""

import dataclasses
import warnings
from collections.abc import Container
from dataclasses import dataclass

from ..config import DataConfig
from .datasets import DatasetInfo, dataset_info
from .images import find_bad_images, missing_files
from .layouts import DatasetSources
from .sources import FileSource, Source, Split, stratified_split
from .transforms import Transform, create_transforms


@dataclass(frozen=True)
class Splits:
    """The splits of a dataset; ``val`` is None without validation images.

    Attributes:
        info: The table row, with the classes, image size, transform, mean and std in use.
        skipped: Path and error of each unreadable image that was skipped.
    """

    info: DatasetInfo
    train: Split
    val: Split | None
    test: Split
    skipped: tuple[str, ...] = ()

    @property
    def by_name(self) -> dict[str, Split]:
        """The splits that there are: ``"train"``, ``"val"`` and ``"test"``."""
        splits = {"train": self.train, "val": self.val, "test": self.test}
        return {name: split for name, split in splits.items() if split is not None}

    @property
    def sizes(self) -> dict[str, int]:
        """Number of images per split."""
        return {name: len(split) for name, split in self.by_name.items()}


def load_splits(config: DataConfig, info: DatasetInfo | None = None) -> Splits:
    """Load a dataset, verify its sizes, and hold out ``data.val_fraction`` of the training images.

    The held-out images depend on ``split_seed``, not on the seed of a run.

    Args:
        config: The dataset and its options.
        info: The table row to verify against; by default that of ``config.name``.

    Example:
        >>> load_splits(DataConfig(name="digits", val_fraction=0.2)).sizes
        {'train': 1078, 'val': 269, 'test': 450}
    """
    info = info_in_use(config, info)
    loaded = info.load(config)
    info = dataclasses.replace(info, classes=checked_classes(config, info, loaded))
    train_transform, eval_transform = _transforms(config, info)
    sources, skipped = _readable(config, {"train": loaded.train, "val": loaded.val, "test": loaded.test})
    train, val, test = sources["train"], sources["val"], sources["test"]
    test_split = Split(test, eval_transform)
    if config.val_fraction > 0.0 and val is None:
        kept, held = stratified_split(train.targets, config.val_fraction, config.split_seed)
        splits = Split(train, train_transform, kept), Split(train, eval_transform, held), test_split
    else:
        splits = Split(train, train_transform), None if val is None else Split(val, eval_transform), test_split
    if config.cache == "ram":
        for split in filter(None, splits):
            split.cache_in_memory()
    return Splits(info, *splits, skipped)


def info_in_use(config: DataConfig, info: DatasetInfo | None = None) -> DatasetInfo:
    """Return the table row of a dataset with the overrides of the config."""
    info = info or dataset_info(config.name)
    if info.n_partitions is not None and config.partition > info.n_partitions:
        raise ValueError(
            f"data: expected data.partition in 1 … {info.n_partitions} for {config.name!r}, got {config.partition}."
        )
    if config.download and not info.downloads:
        raise ValueError(
            f"data: expected data.download=false, because {config.name!r} has no download; get it ({info.source}) and "
            "set data.root."
        )
    # Checked here, because overrides set the two fields of the config one after the other.
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


def checked_classes(config: DataConfig, info: DatasetInfo, loaded: DatasetSources) -> tuple[str, ...]:
    """Return the classes, after verifying the numbers of classes and images."""
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


def _readable(config: DataConfig, splits: dict[str, Source | None]) -> tuple[dict[str, Source], tuple[str, ...]]:
    """Remove unreadable files if ``on_bad_image`` is "skip"; otherwise require every file.

    To skip, every file is decoded once, because the number of images must be known before the first
    epoch, and be the same in all processes and after resuming.
    """
    sources: dict[str, Source] = {}
    skipped: list[str] = []
    for name, source in splits.items():
        if isinstance(source, FileSource) and config.on_bad_image == "skip":
            bad = find_bad_images(source.paths)
            source = _without(source, bad, name) if bad else source
            skipped += bad.values()
        elif isinstance(source, FileSource) and (missing := missing_files(source.paths)):
            raise FileNotFoundError(
                f"data: expected all images of {name} in {config.name!r}, got {len(missing)} missing, "
                f"first {missing[0]!r}; complete the files, or set data.on_bad_image=skip."
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
