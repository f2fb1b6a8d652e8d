"""List the image files of each dataset in its published layout.

One function per dataset maps a config to :class:`DatasetSources`; :mod:`isice.data.splits`
verifies sizes.
"""

import csv
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from .._checks import first_of
from ..config import DataConfig
from .images import IMAGE_SUFFIXES
from .matlab import read_mat
from .sources import FileSource, Source, stratified_split

_TEST_FRACTION = 0.2  # of a folder of classes that has no test images


@dataclass(frozen=True)
class DatasetSources:
    """Class names in the order of the labels, and the splits that the dataset itself defines."""

    classes: tuple[str, ...]
    train: Source
    test: Source
    val: Source | None = None


def load_mit_indoor67(config: DataConfig) -> DatasetSources:
    """Load ``Images/<class>/*`` by the lists ``TrainImages.txt`` and ``TestImages.txt``."""
    root = find_root(config, "Images", "TrainImages.txt", "TestImages.txt")
    lists = {name: _lines(root / f"{name}Images.txt") for name in ("Train", "Test")}
    classes = sorted({line.split("/")[0] for line in lists["Train"]})
    train, test = (
        _files(config, _inside(root / "Images", lines), [line.split("/")[0] for line in lines], classes)
        for lines in lists.values()
    )
    return DatasetSources(tuple(classes), train, test)


def load_cub200(config: DataConfig) -> DatasetSources:
    """Load the archive ``CUB_200_2011``, or ``train/<class>/*`` with ``test/<class>/*``."""
    given = Path(config.root or "").expanduser()
    if config.root is not None and all((given / name).is_dir() for name in ("train", "test")):
        loaded = load_folder(config)
        return replace(loaded, classes=tuple(name.split(".", 1)[-1] for name in loaded.classes))
    root = find_root(config, "images.txt", "image_class_labels.txt", "train_test_split.txt", "classes.txt", "images")
    table = {
        name: _read_columns(root / f"{name}.txt")
        for name in ("images", "image_class_labels", "train_test_split", "classes")
    }
    for name in ("images", "image_class_labels"):
        _check_same_rows(root, (name, table[name]), ("train_test_split", table["train_test_split"]))
    order = {number: name.split(".", 1)[-1] for number, name in table["classes"].items()}
    numbers, classes = list(order), list(order.values())
    members: dict[str, list[str]] = {"1": [], "0": []}
    for image, is_train in table["train_test_split"].items():
        if is_train not in members:
            raise ValueError(
                f"data: expected 0 or 1 for image {image} in {str(root / 'train_test_split.txt')!r}, got {is_train!r}."
            )
        members[is_train].append(image)
    train, test = (
        _files(
            config,
            _inside(root / "images", [table["images"][image] for image in images]),
            [table["image_class_labels"][image] for image in images],
            numbers,
        )
        for images in (members["1"], members["0"])
    )
    return DatasetSources(tuple(classes), train, test)


def load_aircraft(config: DataConfig) -> DatasetSources:
    """Load torchvision's FGVCAircraft: 100 variants, trainval for training."""
    from torchvision.datasets import FGVCAircraft

    train, test = (_torchvision(config, FGVCAircraft, split=split) for split in ("trainval", "test"))
    return DatasetSources(tuple(train.classes), _from_torchvision(train), _from_torchvision(test))


def load_cars(config: DataConfig) -> DatasetSources:
    """Load ``devkit/``, ``cars_train/`` and ``cars_test/`` by the lists of Stanford Cars."""
    test = "cars_test_annos_withlabels.mat"
    root = find_root(config, "devkit", "cars_train", "cars_test", test)
    classes = [name for (name,) in read_mat(root / "devkit" / "cars_meta.mat", "class_names")]
    numbers = [str(number) for number in range(1, len(classes) + 1)]
    splits = []
    for folder, path in (("cars_train", "devkit/cars_train_annos.mat"), ("cars_test", test)):
        rows = read_mat(root / path, "annotations", "fname", "class")
        paths = _inside(root / folder, [name for name, _ in rows])
        splits.append(_files(config, paths, [label for _, label in rows], numbers))
    return DatasetSources(tuple(classes), *splits)


def load_dtd(config: DataConfig) -> DatasetSources:
    """Load torchvision's DTD: partition ``data.partition``, train and val for training."""
    from torchvision.datasets import DTD

    train, val, test = (
        _torchvision(config, DTD, split=name, partition=config.partition) for name in ("train", "val", "test")
    )
    return DatasetSources(tuple(train.classes), _from_torchvision(train, val), _from_torchvision(test))


def load_inaturalist2017(config: DataConfig) -> DatasetSources:
    """Load ``train_val_images/``: ``train2017.json`` for training, ``val2017.json`` for testing.

    torchvision downloads the images, to ``2017/``; the lists (30 MB) are downloaded by hand.
    """
    if config.download:
        from torchvision.datasets import INaturalist

        _torchvision(config, INaturalist, version="2017")
    root = find_root(config, "train2017.json", "val2017.json")
    lists = [_read_json(root / f"{name}2017.json") for name in ("train", "val")]
    try:
        categories = sorted(lists[0]["categories"], key=lambda category: category["id"])
        numbers = [category["id"] for category in categories]
        train, test = (_from_coco(config, root, content, numbers) for content in lists)
        return DatasetSources(tuple(str(category["name"]) for category in categories), train, test)
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"data: expected lists in the format of iNaturalist 2017 in {str(root)!r}, got one without {error}; "
            "download train2017.json and val2017.json again."
        ) from None


def load_mini_imagenet(config: DataConfig) -> DatasetSources:
    """Load 100 classes of 600 images: class folders, or ``images/`` with three CSV lists.

    The lists are few-shot splits with different classes. They are merged and split 90:10 in every
    class, seeded by ``data.partition``.
    """
    root = find_root(config)
    lists = [root / f"{name}.csv" for name in ("train", "val", "test")]
    if all(path.is_file() for path in lists):
        rows = [row for path in lists for row in _read_csv(path)]
        paths, labels = _inside(root / "images", [row[0] for row in rows]), [row[1] for row in rows]
    else:
        paths, labels = _class_folders(root)
    classes = sorted(set(labels))
    everything = _files(config, paths, labels, classes)
    train, test = stratified_split(everything.targets, 0.1, config.partition)
    return DatasetSources(tuple(classes), everything.keep(train), everything.keep(test))


def load_imagenet100(config: DataConfig) -> DatasetSources:
    """Load the classes of imagenet100.txt from ``train/<wnid>/*`` and ``val/<wnid>/*``."""
    root = find_root(config, "train", "val")
    classes = sorted(files(__package__).joinpath("imagenet100.txt").read_text(encoding="utf-8").split())
    splits = []
    for name in ("train", "val"):
        paths, labels = _class_folders(root / name, classes)
        splits.append(_files(config, paths, labels, classes))
    return DatasetSources(tuple(classes), *splits)


def load_folder(config: DataConfig) -> DatasetSources:
    """Load ``train/<class>/*`` with ``test/<class>/*``, ``val/<class>/*`` or both.

    ``val`` alone is the test set; ``validation`` may be written for ``val``. A folder of classes
    without ``train`` is split: a fifth of every class, chosen by ``data.split_seed``, is for
    testing.
    """
    if _is_unsplit(config):
        paths, labels = _class_folders(Path(config.root or "").expanduser())
        source = _files(config, paths, labels, sorted(set(labels)))
        kept, held = stratified_split(source.targets, _TEST_FRACTION, config.split_seed)
        return DatasetSources(tuple(sorted(set(labels))), source.keep(kept), source.keep(held))
    root = find_root(config, "train")
    held_out = [name for name in ("test", "val", "validation") if (root / name).is_dir()]
    if not held_out:
        raise FileNotFoundError(
            f"data: expected a folder 'test' or 'val' beside 'train' in {str(root)!r}, got neither; add one, or set "
            "data.root to the folder of classes, which is then split."
        )
    if {"val", "validation"} <= set(held_out):
        raise ValueError(
            f"data: expected one validation set beside 'train' in {str(root)!r}, got both 'val' and 'validation'; "
            "merge or remove one."
        )
    train_paths, train_labels = _class_folders(root / "train")
    classes = sorted(set(train_labels))
    splits: list[Source] = []
    for name in held_out:
        paths, labels = _class_folders(root / name)
        _check_same_classes(root, name, set(classes), set(labels))
        splits.append(_files(config, paths, labels, classes))
    return DatasetSources(tuple(classes), _files(config, train_paths, train_labels, classes), *splits)


def _is_unsplit(config: DataConfig) -> bool:
    """Return whether ``data.root`` holds folders of images and nowhere one of the usual splits."""
    root = None if config.root is None else Path(config.root).expanduser()
    if root is None or not root.is_dir():
        return False
    names = {"train", "test", "val", "validation"}
    folders = [path for path in root.iterdir() if path.is_dir() and path.name[0] != "."]
    if not folders or any(f.name in names or any((f / name).is_dir() for name in names) for f in folders):
        return False
    return any(file.suffix.lower() in IMAGE_SUFFIXES for folder in folders for file in folder.iterdir())


def find_root(config: DataConfig, *needed: str) -> Path:
    """Return ``data.root``, or the folder in it, that contains the files ``needed``."""
    if config.root is None:
        raise ValueError(f"data: expected data.root, the folder of {config.name!r}, got none; set data.root=FOLDER.")
    root = Path(config.root).expanduser()
    if not root.is_dir():
        problem = "is a file; unpack it and name the folder" if root.exists() else "does not exist; check the path"
        raise FileNotFoundError(f"data: expected data.root to be a folder, got {str(root)!r}, which {problem}.")
    candidates = [root, *sorted(path for path in root.iterdir() if path.is_dir())]
    complete = [path for path in candidates if all((path / name).exists() for name in needed)]
    if not complete:
        missing = [name for name in needed if not (root / name).exists()]
        remedy = "unpack the archive there or set data.root"
        if config.name == "folder":
            remedy = "sort the images into <class>/*, or into train/<class>/* and test/<class>/* (or val/<class>/*)"
        raise FileNotFoundError(
            f"data: expected {', '.join(needed)} of {config.name!r} in {str(root)!r} or a folder of it, "
            f"got no {', '.join(missing)}; {remedy}."
        )
    return complete[0]


def _files(config: DataConfig, paths: Iterable[Path | str], labels: Iterable[Any], classes: list[Any]) -> FileSource:
    number = {label: index for index, label in enumerate(classes)}
    labels = list(labels)
    unknown = sorted({str(label) for label in labels if label not in number})
    if unknown:
        raise ValueError(
            f"data: expected only the {len(classes)} classes of {config.name!r}, got also {_some(unknown)}; check "
            "the class lists."
        )
    return FileSource([str(path) for path in paths], [number[label] for label in labels])


def _class_folders(folder: Path, classes: list[str] | None = None) -> tuple[list[Path], list[str]]:
    """Return the image files of ``<folder>/<class>/*`` and the class name of each."""
    names = classes or sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name[0] != ".")
    if not names:
        raise ValueError(f"data: expected one folder per class in {str(folder)!r}, got none; sort the images into one.")
    paths: list[Path] = []
    labels: list[str] = []
    missing = [name for name in names if not (folder / name).is_dir()]
    if missing:
        raise FileNotFoundError(
            f"data: expected a folder for each of {len(names)} classes in {str(folder)!r}, got no {_some(missing)}; "
            "add the missing ones."
        )
    for name in names:
        found = sorted(p for p in (folder / name).iterdir() if p.suffix.lower() in IMAGE_SUFFIXES and p.name[0] != ".")
        if not found:
            raise ValueError(
                f"data: expected images in every class folder, got none in {str(folder / name)!r}; add images or "
                "remove the folder."
            )
        paths += found
        labels += [name] * len(found)
    return paths, labels


def _check_same_classes(root: Path, name: str, train: set[str], other: set[str]) -> None:
    if train != other:
        words = [f"only in train: {_some(sorted(train - other))}"] if train - other else []
        words += [f"only in {name}: {_some(sorted(other - train))}"] if other - train else []
        raise ValueError(
            f"data: expected the same classes in train and {name} of {str(root)!r}, got {'; '.join(words)}; "
            "add or remove class folders."
        )


def _torchvision(config: DataConfig, dataset: Callable[..., Any], **options: Any) -> Any:
    """Create a torchvision dataset whose samples are (path, label)."""
    root = Path(config.root).expanduser() if config.root is not None and config.download else find_root(config)
    try:
        return dataset(root, download=config.download, loader=str, **options)
    except LookupError as error:
        raise ValueError(
            f"data: expected lists of {config.name!r} that agree in {str(root)!r}, got {error} in one of them only; "
            "unpack the archive again."
        ) from None
    except (RuntimeError, ValueError, OSError) as error:
        raise FileNotFoundError(
            f"data: expected {config.name!r} in {str(root)!r}, got: {error} "
            "Set data.root to where it was unpacked, or data.download=true where torchvision can download it."
        ) from None


def _from_torchvision(*datasets: Any) -> FileSource:
    samples = [dataset[index] for dataset in datasets for index in range(len(dataset))]
    root = os.path.abspath(datasets[0].root)
    paths = [os.path.relpath(os.path.abspath(path), root) for path, _ in samples]
    return FileSource(list(map(str, _inside(Path(root), paths))), torch.tensor([label for _, label in samples]))


def _from_coco(config: DataConfig, root: Path, content: dict[str, Any], numbers: list[int]) -> FileSource:
    label = {row["image_id"]: row["category_id"] for row in content["annotations"]}
    names = [image["file_name"] for image in content["images"]]
    unlabelled = [str(image["id"]) for image in content["images"] if image["id"] not in label]
    if unlabelled:
        raise ValueError(
            f"data: expected an annotation for every image of {config.name!r}, got none for the images "
            f"{_some(unlabelled)}; download the lists again."
        )
    # torchvision renames train_val_images to 2017.
    renamed = not (root / "train_val_images").is_dir() and (root / "2017").is_dir()
    paths = _inside(root, [name.replace("train_val_images", "2017", 1) if renamed else name for name in names])
    return _files(config, paths, [label[image["id"]] for image in content["images"]], numbers)


def _inside(folder: Path, names: Iterable[str]) -> list[Path]:
    """Return the paths of names in a folder; a list may not name files elsewhere."""
    paths = []
    for name in names:
        if os.path.isabs(name) or os.path.normpath(name).split(os.sep, 1)[0] == os.pardir:
            raise ValueError(f"data: expected lists to name files in {str(folder)!r}, got {name!r}; repair the list.")
        paths.append(folder / name)
    return paths


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise ValueError(f"data: expected a text file at {str(path)!r}, got: {error}; unpack it again.") from None


def _read_columns(path: Path) -> dict[str, str]:
    """Read lines of two columns, a key and its value."""
    rows = [line.split(maxsplit=1) for line in _lines(path)]
    bad = next((" ".join(row) for row in rows if len(row) != 2), None)
    if bad is not None:
        raise ValueError(f"data: expected two columns in every line of {str(path)!r}, got {bad!r}; unpack it again.")
    return dict(rows)


def _check_same_rows(root: Path, first: tuple[str, Mapping[str, str]], second: tuple[str, Mapping[str, str]]) -> None:
    differing = sorted(first[1].keys() ^ second[1].keys())
    if differing:
        raise ValueError(
            f"data: expected the same images in {first[0]}.txt and {second[0]}.txt of {str(root)!r}, got only one of "
            f"the two for {_some(differing)}; unpack the archive again."
        )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"data: expected JSON in {str(path)!r}, got: {error}; download it again.") from None
    if not isinstance(content, dict):
        raise ValueError(
            f"data: expected a JSON object in {str(path)!r}, got {type(content).__name__}; download it again."
        )
    return content


def _read_csv(path: Path) -> list[list[str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in list(csv.reader(file))[1:] if row]
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"data: expected a CSV list at {str(path)!r}, got: {error}; download it again.") from None
    bad = next((row for row in rows if len(row) < 2), None)
    if bad is not None:
        raise ValueError(
            f"data: expected columns filename,label in {str(path)!r}, got {','.join(bad)!r}; download it again."
        )
    return rows


def _some(names: Iterable[str]) -> str:
    return first_of(map(repr, names))
