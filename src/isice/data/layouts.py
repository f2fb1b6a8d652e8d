"""How each archive lies on disk: from its own list files and folders to training and test files with labels.

One function per dataset. Each takes the config and gives :class:`Loaded`; sizes are checked later,
against the table.
"""

import csv
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from ..config import DataConfig
from .images import IMAGE_SUFFIXES
from .sources import FileSource, Source, stratified_split


@dataclass(frozen=True)
class Loaded:
    """What a dataset gives: class names in the order of the labels, and its parts. ``val`` where it has its own."""

    classes: tuple[str, ...]
    train: Source
    test: Source
    val: Source | None = None


def load_mit_indoor67(config: DataConfig) -> Loaded:
    """``Images/<class>/*`` with the lists ``TrainImages.txt`` and ``TestImages.txt`` of the archive."""
    root = find_root(config, "Images", "TrainImages.txt", "TestImages.txt")
    lists = {name: _lines(root / f"{name}Images.txt") for name in ("Train", "Test")}
    classes = sorted({line.split("/")[0] for line in lists["Train"]})
    train, test = (
        _files(config, [root / "Images" / line for line in lines], [line.split("/")[0] for line in lines], classes)
        for lines in lists.values()
    )
    return Loaded(tuple(classes), train, test)


def load_cub200(config: DataConfig) -> Loaded:
    """The archive ``CUB_200_2011``: images.txt, image_class_labels.txt, train_test_split.txt, classes.txt, images/."""
    root = find_root(config, "images.txt", "image_class_labels.txt", "train_test_split.txt", "classes.txt", "images")
    table = {
        name: dict(line.split(maxsplit=1) for line in _lines(root / f"{name}.txt"))
        for name in ("images", "image_class_labels", "train_test_split", "classes")
    }
    order = {number: name.split(".", 1)[-1] for number, name in table["classes"].items()}
    numbers, classes = list(order), list(order.values())
    members: dict[str, list[str]] = {"1": [], "0": []}
    for image, part in table["train_test_split"].items():
        members[part].append(image)
    train, test = (
        _files(
            config,
            [root / "images" / table["images"][image] for image in images],
            [table["image_class_labels"][image] for image in images],
            numbers,
        )
        for images in (members["1"], members["0"])
    )
    return Loaded(tuple(classes), train, test)


def load_aircraft(config: DataConfig) -> Loaded:
    """torchvision's FGVCAircraft, its 100 variants, trainval for training."""
    from torchvision.datasets import FGVCAircraft

    train, test = (_torchvision(config, FGVCAircraft, split=split) for split in ("trainval", "test"))
    return Loaded(tuple(train.classes), _from_torchvision(train), _from_torchvision(test))


def load_cars(config: DataConfig) -> Loaded:
    """torchvision's StanfordCars: ``stanford_cars/`` with devkit/, cars_train/, cars_test/ and the test labels."""
    from torchvision.datasets import StanfordCars

    train, test = (_torchvision(config, StanfordCars, split=split) for split in ("train", "test"))
    return Loaded(tuple(train.classes), _from_torchvision(train), _from_torchvision(test))


def load_dtd(config: DataConfig) -> Loaded:
    """torchvision's DTD: official split 1 … 10 by ``data.partition``, train and val together for training."""
    from torchvision.datasets import DTD

    parts = [_torchvision(config, DTD, split=name, partition=config.partition) for name in ("train", "val", "test")]
    return Loaded(tuple(parts[0].classes), _from_torchvision(*parts[:2]), _from_torchvision(parts[2]))


def load_inaturalist2017(config: DataConfig) -> Loaded:
    """The competition's lists ``train2017.json`` and ``val2017.json``, with its ``train_val_images/``.

    torchvision's INaturalist knows the images but not the parts, so it serves for the download
    only: it puts the images under ``2017/``. The lists are 30 MB and have to be fetched by hand.
    """
    if config.download:
        from torchvision.datasets import INaturalist

        _torchvision(config, INaturalist, version="2017")
    root = find_root(config, "train2017.json", "val2017.json")
    lists = [_read_json(root / f"{name}2017.json") for name in ("train", "val")]
    categories = sorted(lists[0]["categories"], key=lambda category: category["id"])
    numbers = [category["id"] for category in categories]
    train, test = (_from_coco(config, root, part, numbers) for part in lists)
    return Loaded(tuple(category["name"] for category in categories), train, test)


def load_mini_imagenet(config: DataConfig) -> Loaded:
    """100 classes of 600 images, as one folder per class or as ``images/`` with train.csv, val.csv and test.csv.

    The few-shot parts (other classes in each) are put together and split 90:10 in every class;
    ``data.partition`` is the seed of that split.
    """
    root = find_root(config)
    lists = [root / f"{name}.csv" for name in ("train", "val", "test")]
    if all(path.is_file() for path in lists):
        rows = [row for path in lists for row in _read_csv(path)]
        paths, labels = [root / "images" / row[0] for row in rows], [row[1] for row in rows]
    else:
        paths, labels = _class_folders(root)
    classes = sorted(set(labels))
    everything = _files(config, paths, labels, classes)
    train, test = stratified_split(everything.targets, 0.1, config.partition)
    return Loaded(tuple(classes), everything.keep(train), everything.keep(test))


def load_imagenet100(config: DataConfig) -> Loaded:
    """ImageNet's ``train/<wnid>/*`` and ``val/<wnid>/*``, of which the 100 listed classes are taken, sorted."""
    root = find_root(config, "train", "val")
    classes = sorted(files(__package__).joinpath("imagenet100.txt").read_text(encoding="utf-8").split())
    parts = []
    for name in ("train", "val"):
        paths, labels = _class_folders(root / name, classes)
        parts.append(_files(config, paths, labels, classes))
    return Loaded(tuple(classes), *parts)


def load_folder(config: DataConfig) -> Loaded:
    """Any ``train/<class>/*`` with ``test/<class>/*`` or ``val/<class>/*``; with both, ``val`` is for validation."""
    root = find_root(config, "train")
    held_out = [name for name in ("test", "val") if (root / name).is_dir()]
    if not held_out:
        raise FileNotFoundError(
            f"data: expected a folder 'test' or 'val' beside 'train' in {str(root)!r}, got neither."
        )
    train_paths, train_labels = _class_folders(root / "train")
    classes = sorted(set(train_labels))
    parts: list[Source] = []
    for name in held_out:
        paths, labels = _class_folders(root / name)
        _check_same_classes(root, name, set(classes), set(labels))
        parts.append(_files(config, paths, labels, classes))
    return Loaded(tuple(classes), _files(config, train_paths, train_labels, classes), *parts)


def _remedy(name: str) -> str:
    if name == "folder":
        return "sort the images into train/<class>/* and test/<class>/* (or val/<class>/*)"
    return "unpack the archive there or set data.root"


def find_root(config: DataConfig, *needed: str) -> Path:
    """``data.root``, or the single folder in it that holds ``needed`` (an archive unpacked as it came)."""
    if config.root is None:
        raise ValueError(f"data: expected data.root, the folder of {config.name!r}, got none; set data.root=FOLDER.")
    root = Path(config.root).expanduser()
    if not root.is_dir():
        raise FileNotFoundError(f"data: expected data.root to be a folder, got {str(root)!r}, which does not exist.")
    candidates = [root, *sorted(path for path in root.iterdir() if path.is_dir())]
    complete = [path for path in candidates if all((path / name).exists() for name in needed)]
    if not complete:
        missing = [name for name in needed if not (root / name).exists()]
        raise FileNotFoundError(
            f"data: expected {', '.join(needed)} of {config.name!r} in {str(root)!r} or a folder of it, "
            f"got no {', '.join(missing)}; {_remedy(config.name)}."
        )
    return complete[0]


def _files(config: DataConfig, paths: Iterable[Path | str], labels: Iterable[Any], classes: list[Any]) -> FileSource:
    number = {label: index for index, label in enumerate(classes)}
    labels = list(labels)
    unknown = sorted({str(label) for label in labels if label not in number})
    if unknown:
        raise ValueError(
            f"data: expected only the {len(classes)} classes of {config.name!r}, got also {_some(unknown)}."
        )
    return FileSource([str(path) for path in paths], [number[label] for label in labels])


def _class_folders(folder: Path, classes: list[str] | None = None) -> tuple[list[Path], list[str]]:
    """Image files of ``<folder>/<class>/*`` and their class names; an empty or missing class is an error."""
    names = classes or sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name[0] != ".")
    if not names:
        raise ValueError(f"data: expected one folder per class in {str(folder)!r}, got none.")
    paths: list[Path] = []
    labels: list[str] = []
    missing = [name for name in names if not (folder / name).is_dir()]
    if missing:
        raise FileNotFoundError(
            f"data: expected a folder for each of {len(names)} classes in {str(folder)!r}, got no {_some(missing)}."
        )
    for name in names:
        found = sorted(p for p in (folder / name).iterdir() if p.suffix.lower() in IMAGE_SUFFIXES and p.name[0] != ".")
        if not found:
            raise ValueError(f"data: expected images in every class folder, got none in {str(folder / name)!r}.")
        paths += found
        labels += [name] * len(found)
    return paths, labels


def _check_same_classes(root: Path, name: str, train: set[str], other: set[str]) -> None:
    if train != other:
        words = [f"only in train: {_some(sorted(train - other))}"] if train - other else []
        words += [f"only in {name}: {_some(sorted(other - train))}"] if other - train else []
        raise ValueError(
            f"data: expected the same classes in train and {name} of {str(root)!r}, got {'; '.join(words)}."
        )


def _torchvision(config: DataConfig, dataset: Callable[..., Any], **options: Any) -> Any:
    """A torchvision dataset whose loader gives the path; its failures in this package's words."""
    root = Path(config.root).expanduser() if config.root is not None and config.download else find_root(config)
    try:
        return dataset(root, download=config.download, loader=str, **options)
    except (RuntimeError, ValueError, OSError) as error:
        raise FileNotFoundError(
            f"data: expected {config.name!r} in {str(root)!r}, got: {error} "
            "Set data.root to where it was unpacked, or data.download=true where torchvision can download it."
        ) from None


def _from_torchvision(*parts: Dataset) -> FileSource:
    samples = [part[index] for part in parts for index in range(len(part))]  # type: ignore[arg-type]
    return FileSource([path for path, _ in samples], torch.tensor([label for _, label in samples]))


def _from_coco(config: DataConfig, root: Path, part: dict[str, Any], numbers: list[int]) -> FileSource:
    label = {row["image_id"]: row["category_id"] for row in part["annotations"]}
    names = [image["file_name"] for image in part["images"]]
    # torchvision renames the unpacked folder to 2017.
    renamed = not (root / "train_val_images").is_dir() and (root / "2017").is_dir()
    paths = [root / (name.replace("train_val_images", "2017", 1) if renamed else name) for name in names]
    return _files(config, paths, [label[image["id"]] for image in part["images"]], numbers)


def _lines(path: Path) -> list[str]:
    return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"data: expected JSON in {str(path)!r}, got: {error}.") from None


def _read_csv(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))[1:]


def _some(names: list[str], limit: int = 5) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(map(repr, names[:limit])) + more
