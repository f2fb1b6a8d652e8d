"""Miniature archives, laid out as the real ones are."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from PIL import Image


def save_image(path: Path, seed: int = 0, size: tuple[int, int] = (24, 20)) -> Path:
    """A small coloured picture, another one for each seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = np.random.default_rng(seed).integers(0, 256, (3, 4, 3), dtype=np.uint8)
    Image.fromarray(coarse).resize(size, Image.Resampling.BILINEAR).save(path)
    return path


def save_class_folders(folder: Path, counts: dict[str, int]) -> None:
    for label, (name, count) in enumerate(counts.items()):
        for number in range(count):
            save_image(folder / name / f"{number}.jpg", seed=100 * label + number)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes, 4 and 3 images in train, 2 and 1 in test."""
    save_class_folders(tmp_path / "train", {"cat": 4, "dog": 3})
    save_class_folders(tmp_path / "test", {"cat": 2, "dog": 1})
    return tmp_path


@pytest.fixture
def mit_indoor67(tmp_path: Path) -> Path:
    lists = {"Train": ["bakery/a.jpg", "airport_inside/b.jpg", "bakery/c.jpg"], "Test": ["airport_inside/d.jpg"]}
    for name, lines in lists.items():
        # The archive's lists end without a line break.
        (tmp_path / f"{name}Images.txt").write_text("\n".join(lines))
        for seed, line in enumerate(lines):
            save_image(tmp_path / "Images" / line, seed)
    save_image(tmp_path / "Images" / "bakery" / "in_no_list.jpg")
    return tmp_path


@pytest.fixture
def cub200(tmp_path: Path) -> Path:
    root = tmp_path / "CUB_200_2011"
    names = ["001.Black_footed_Albatross/x_1.jpg", "001.Black_footed_Albatross/x_2.jpg", "002.Laysan_Albatross/y_1.jpg"]
    for seed, name in enumerate(names):
        save_image(root / "images" / name, seed)
    (root / "images.txt").write_text("".join(f"{i} {name}\n" for i, name in enumerate(names, 1)))
    (root / "image_class_labels.txt").write_text("1 1\n2 1\n3 2\n")
    (root / "train_test_split.txt").write_text("1 1\n2 0\n3 1\n")
    (root / "classes.txt").write_text("1 001.Black_footed_Albatross\n2 002.Laysan_Albatross\n")
    return tmp_path


@pytest.fixture
def aircraft(tmp_path: Path) -> Path:
    data = tmp_path / "fgvc-aircraft-2013b" / "data"
    for number in range(4):
        save_image(data / "images" / f"000000{number}.jpg", number)
    (data / "variants.txt").write_text("707-320\nBoeing 717\n")
    (data / "images_variant_trainval.txt").write_text("0000000 Boeing 717\n0000001 707-320\n0000002 707-320\n")
    (data / "images_variant_test.txt").write_text("0000003 Boeing 717\n")
    return tmp_path


@pytest.fixture
def cars(tmp_path: Path) -> Path:
    root = tmp_path / "stanford_cars"
    (root / "devkit").mkdir(parents=True)
    parts = {"train": [("00001.jpg", 2), ("00002.jpg", 1)], "test": [("00001.jpg", 1)]}
    files = {"train": root / "devkit" / "cars_train_annos.mat", "test": root / "cars_test_annos_withlabels.mat"}
    for part, rows in parts.items():
        for seed, (name, _) in enumerate(rows):
            save_image(root / f"cars_{part}" / name, seed)
        # MATLAB has no scalars: one row is padded to two and cut again, as loadmat
        # squeezes a single one away.
        annotations = np.array(rows * (2 // len(rows)), dtype=[("fname", object), ("class", np.uint8)])
        scipy.io.savemat(files[part], {"annotations": annotations})
    scipy.io.savemat(root / "devkit" / "cars_meta.mat", {"class_names": np.array(["Acura", "BMW"], dtype=object)})
    return tmp_path


@pytest.fixture
def dtd(tmp_path: Path) -> Path:
    root = tmp_path / "dtd" / "dtd"
    (root / "labels").mkdir(parents=True)
    for split in range(1, 11):
        order = np.roll(np.arange(3), split)
        for part, number in zip(("train", "val", "test"), order, strict=True):
            lines = [f"{name}/{name}_{number}.jpg" for name in ("banded", "woven")]
            (root / "labels" / f"{part}{split}.txt").write_text("".join(f"{line}\n" for line in lines))
    for name in ("banded", "woven"):
        for number in range(3):
            save_image(root / "images" / name / f"{name}_{number}.jpg", number)
    return tmp_path


@pytest.fixture
def inaturalist2017(tmp_path: Path) -> Path:
    categories = [{"id": 0, "name": "Turdus merula", "supercategory": "Aves"}, {"id": 1, "name": "Bufo bufo"}]
    parts = {"train": [(7, 1), (8, 0), (9, 1)], "val": [(3, 0)]}
    for part, rows in parts.items():
        images = [{"id": i, "file_name": f"train_val_images/Aves/Turdus merula/{i}.jpg"} for i, _ in rows]
        # Annotations come in another order than images.
        annotations = [{"image_id": i, "category_id": label} for i, label in reversed(rows)]
        content = {"images": images, "annotations": annotations, "categories": categories[::-1]}
        (tmp_path / f"{part}2017.json").write_text(json.dumps(content))
        for image in images:
            save_image(tmp_path / image["file_name"], image["id"])
    return tmp_path


@pytest.fixture
def mini_imagenet(tmp_path: Path) -> Path:
    """Three classes of 20, one in each of the few-shot lists."""
    for part, wnid in (("train", "n01532829"), ("val", "n01855672"), ("test", "n01930112")):
        names = [f"{wnid}{number:08d}.jpg" for number in range(20)]
        (tmp_path / f"{part}.csv").write_text("filename,label\n" + "".join(f"{name},{wnid}\n" for name in names))
        for seed, name in enumerate(names):
            save_image(tmp_path / "images" / name, seed)
    return tmp_path
