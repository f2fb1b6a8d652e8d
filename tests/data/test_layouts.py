"""Every dataset's loader on a miniature archive; wrong counts and missing files are named."""

import dataclasses
import shutil
from collections import Counter
from importlib.resources import files
from pathlib import Path

import pytest
import torch

from isice.config import DataConfig
from isice.data import DATASETS, DatasetInfo, Splits, dataset_info, load_splits

from .conftest import save_class_folders, save_image

PAPER = {
    "mit_indoor67": (67, 5360, 1340, 448),
    "cub200": (200, 5994, 5794, 448),
    "aircraft": (100, 6667, 3333, 448),
    "cars": (196, 8144, 8041, 448),
    "dtd": (47, 3760, 1880, 448),
    "inaturalist2017": (5089, 579184, 95986, 299),
    "mini_imagenet": (100, 54000, 6000, 224),
    "imagenet100": (100, 126689, 5000, 224),
}


def miniature(name: str, root: Path, classes: int, train: int, test: int, **options) -> Splits:
    """The real loader with the counts of a miniature in place of the real ones."""
    info = dataclasses.replace(dataset_info(name), num_classes=classes, train_size=train, test_size=test)
    return load_splits(DataConfig(name=name, root=str(root), image_size=16, **options), info)


def names(part) -> list[str]:
    return [Path(part.source.path(int(index))).name for index in part.indices]


def test_table_has_the_papers_datasets():
    for name, row in PAPER.items():
        info = DATASETS[name]
        assert (info.num_classes, info.train_size, info.test_size, info.image_size) == row
        assert info.source


def test_mit_indoor67(mit_indoor67: Path):
    splits = miniature("mit_indoor67", mit_indoor67, 2, 3, 1)
    assert splits.info.classes == ("airport_inside", "bakery")
    assert names(splits.train) == ["a.jpg", "b.jpg", "c.jpg"]
    assert splits.train.targets.tolist() == [1, 0, 1]
    assert splits.test.targets.tolist() == [0]


def test_cub200(cub200: Path):
    splits = miniature("cub200", cub200, 2, 2, 1)
    assert splits.info.classes == ("Black_footed_Albatross", "Laysan_Albatross")
    assert (names(splits.train), names(splits.test)) == (["x_1.jpg", "y_1.jpg"], ["x_2.jpg"])
    assert (splits.train.targets.tolist(), splits.test.targets.tolist()) == ([0, 1], [0])
    inside = miniature("cub200", cub200 / "CUB_200_2011", 2, 2, 1)
    assert names(inside.train) == names(splits.train)


def test_cub200_in_folders_of_its_split(tmp_path: Path):
    for name in (
        "train/002.Laysan_Albatross/y",
        "train/001.Sooty/x",
        "test/001.Sooty/z",
        "test/002.Laysan_Albatross/w",
    ):
        save_image(tmp_path / f"{name}.jpg")
    splits = miniature("cub200", tmp_path, 2, 2, 2)
    assert splits.info.classes == ("Sooty", "Laysan_Albatross")
    assert (names(splits.train), splits.test.targets.tolist()) == (["x.jpg", "y.jpg"], [0, 1])
    with pytest.raises(ValueError, match="expected 200 classes in 'cub200', got 2"):
        load_splits(DataConfig(name="cub200", root=str(tmp_path)))


def test_aircraft(aircraft: Path):
    splits = miniature("aircraft", aircraft, 2, 3, 1)
    assert splits.info.classes == ("707-320", "Boeing 717")
    assert splits.train.targets.tolist() == [1, 0, 0]
    assert names(splits.test) == ["0000003.jpg"]


def test_cars(cars: Path):
    splits = miniature("cars", cars, 2, 2, 2)
    assert splits.info.classes == ("Acura", "BMW")
    assert splits.train.targets.tolist() == [1, 0]
    assert splits.test.targets.tolist() == [0, 0]
    inside = miniature("cars", cars / "stanford_cars", 2, 2, 2)
    assert names(inside.train) == names(splits.train) == ["00001.jpg", "00002.jpg"]


@pytest.mark.parametrize("partition", [1, 10])
def test_dtd_trains_on_train_and_val_of_the_chosen_partition(dtd: Path, partition: int):
    splits = miniature("dtd", dtd, 2, 4, 2, partition=partition)
    listed = [(dtd / f"dtd/dtd/labels/{part}{partition}.txt").read_text().split() for part in ("train", "val", "test")]
    assert names(splits.train) == [line.split("/")[1] for line in listed[0] + listed[1]]
    assert names(splits.test) == [line.split("/")[1] for line in listed[2]]
    assert splits.train.targets.tolist() == [0, 1, 0, 1]


def test_dtd_has_ten_partitions_and_others_one(dtd: Path):
    with pytest.raises(ValueError, match=r"data.partition in 1 … 10 for 'dtd', got 11"):
        miniature("dtd", dtd, 2, 4, 2, partition=11)
    with pytest.raises(ValueError, match=r"data.partition in 1 … 1 for 'cub200', got 2"):
        miniature("cub200", dtd, 2, 4, 2, partition=2)


@pytest.mark.parametrize("unpacked_by_torchvision", [False, True])
def test_inaturalist2017(inaturalist2017: Path, unpacked_by_torchvision: bool):
    if unpacked_by_torchvision:
        (inaturalist2017 / "train_val_images").rename(inaturalist2017 / "2017")
    splits = miniature("inaturalist2017", inaturalist2017, 2, 3, 1)
    assert splits.info.classes == ("Turdus merula", "Bufo bufo")
    assert names(splits.train) == ["7.jpg", "8.jpg", "9.jpg"]
    assert splits.train.targets.tolist() == [1, 0, 1]
    assert splits.test[0][0].shape == (3, 16, 16)


def test_mini_imagenet_is_split_ninety_to_ten_in_every_class(mini_imagenet: Path):
    splits = miniature("mini_imagenet", mini_imagenet, 3, 54, 6)
    assert splits.train.targets.bincount().tolist() == [18, 18, 18]
    assert splits.test.targets.bincount().tolist() == [2, 2, 2]
    assert not set(names(splits.train)) & set(names(splits.test))
    again, other = (miniature("mini_imagenet", mini_imagenet, 3, 54, 6, partition=partition) for partition in (1, 2))
    assert names(again.test) == names(splits.test)
    assert names(other.test) != names(splits.test)


def test_mini_imagenet_as_class_folders(tmp_path: Path):
    save_class_folders(tmp_path, {"n01": 10, "n02": 10})
    splits = miniature("mini_imagenet", tmp_path, 2, 18, 2)
    assert splits.info.classes == ("n01", "n02")


def test_imagenet100_takes_its_classes_only(tmp_path: Path):
    wnids = sorted(files("isice.data").joinpath("imagenet100.txt").read_text().split())
    assert len(set(wnids)) == 100
    picture = save_image(tmp_path / "picture.JPEG")
    for part in ("train", "val"):
        for wnid in [*wnids, "n00000000"]:
            (tmp_path / part / wnid).mkdir(parents=True)
            shutil.copy(picture, tmp_path / part / wnid / f"{wnid}_1.JPEG")
    splits = miniature("imagenet100", tmp_path, 100, 100, 100)
    assert splits.info.classes == tuple(wnids)
    assert splits.train.targets.tolist() == list(range(100))
    shutil.rmtree(tmp_path / "val" / wnids[3])
    with pytest.raises(FileNotFoundError, match=f"each of 100 classes in '.*val', got no '{wnids[3]}'"):
        miniature("imagenet100", tmp_path, 100, 100, 100)


def test_folder(folder: Path):
    splits = load_splits(DataConfig(name="folder", root=str(folder), image_size=8))
    assert splits.info.classes == ("cat", "dog")
    assert splits.sizes == {"train": 7, "test": 3}
    image, label = splits.train[6]
    assert (image.shape, image.dtype, label) == ((3, 8, 8), torch.float32, 1)


def test_folder_with_val_and_test(folder: Path):
    save_class_folders(folder / "val", {"cat": 1, "dog": 1})
    for fraction in (0.0, 0.3):  # nothing is held out of the training images
        config = DataConfig(name="folder", root=str(folder), val_fraction=fraction)
        assert load_splits(config).sizes == {"train": 7, "val": 2, "test": 3}


def test_folder_with_val_only(folder: Path):
    (folder / "test").rename(folder / "val")
    assert load_splits(DataConfig(name="folder", root=str(folder))).sizes == {"train": 7, "test": 3}


def test_folder_with_validation(folder: Path):
    save_class_folders(folder / "validation", {"cat": 1, "dog": 1})
    assert load_splits(DataConfig(name="folder", root=str(folder))).sizes == {"train": 7, "val": 2, "test": 3}


def test_folder_with_two_validation_sets(folder: Path):
    for name in ("val", "validation"):
        save_class_folders(folder / name, {"cat": 1, "dog": 1})
    with pytest.raises(ValueError, match="got both 'val' and 'validation'; merge or remove one"):
        load_splits(DataConfig(name="folder", root=str(folder)))


def test_a_folder_of_classes_is_split_by_its_seed(tmp_path: Path):
    save_class_folders(tmp_path, {"cat": 10, "dog": 5})

    def tested(seed: int) -> list[str]:
        return load_splits(DataConfig(name="folder", root=str(tmp_path), split_seed=seed)).test.source.paths

    splits = load_splits(DataConfig(name="folder", root=str(tmp_path)))
    assert splits.info.classes == ("cat", "dog")
    assert splits.sizes == {"train": 12, "test": 3}
    assert not set(splits.train.source.paths) & set(splits.test.source.paths)
    assert tested(0) == tested(0) != tested(1)


def test_other_files_are_no_images(folder: Path):
    (folder / "train" / "cat" / "notes.txt").write_text("")
    (folder / "train" / "cat" / "._0.jpg").write_text("")
    (folder / "train" / ".thumbnails").mkdir()
    assert load_splits(DataConfig(name="folder", root=str(folder))).sizes["train"] == 7


def test_empty_class(folder: Path):
    (folder / "test" / "eel").mkdir()
    with pytest.raises(ValueError, match=r"images in every class folder, got none in '.*eel'"):
        load_splits(DataConfig(name="folder", root=str(folder)))


def test_different_classes(folder: Path):
    save_image(folder / "train" / "eel" / "0.jpg")
    save_image(folder / "test" / "fox" / "0.jpg")
    with pytest.raises(ValueError, match="got only in train: 'eel'; only in test: 'fox'"):
        load_splits(DataConfig(name="folder", root=str(folder)))


def test_missing_folders(folder: Path):
    with pytest.raises(ValueError, match=r"expected data.root, the folder of 'cub200', got none"):
        load_splits(DataConfig(name="cub200"))
    with pytest.raises(FileNotFoundError, match=r"'.*nowhere', which does not exist"):
        load_splits(DataConfig(name="folder", root=str(folder / "nowhere")))
    (folder / "archive.zip").touch()
    with pytest.raises(FileNotFoundError, match=r"'.*archive\.zip', which is a file; unpack it"):
        load_splits(DataConfig(name="folder", root=str(folder / "archive.zip")))
    with pytest.raises(FileNotFoundError, match=r"expected images.txt, .* got no images.txt"):
        load_splits(DataConfig(name="cub200", root=str(folder / "train")))
    shutil.rmtree(folder / "test")
    with pytest.raises(FileNotFoundError, match="'test' or 'val' beside 'train' in"):
        load_splits(DataConfig(name="folder", root=str(folder)))


@pytest.mark.parametrize("name", ["aircraft", "dtd"])
def test_torchvisions_failures_are_explained(tmp_path: Path, name: str):
    with pytest.raises(FileNotFoundError, match=rf"expected '{name}' in .* Set data.root to where it was unpacked"):
        load_splits(DataConfig(name=name, root=str(tmp_path)))


@pytest.mark.parametrize("name", ["cub200", "cars", "folder"])
def test_what_cannot_be_downloaded_says_so(folder: Path, name: str):
    with pytest.raises(ValueError, match=rf"'{name}' has no download; get it \(.*\) and set data.root"):
        load_splits(DataConfig(name=name, root=str(folder), download=True))


def test_download_is_left_to_torchvision(aircraft: Path, monkeypatch):
    from torchvision.datasets import FGVCAircraft

    asked = []
    monkeypatch.setattr(FGVCAircraft, "_download", lambda self: asked.append(self.root))
    miniature("aircraft", aircraft, 2, 3, 1, download=True)
    assert asked == [aircraft, aircraft]


@pytest.mark.parametrize(("classes", "train", "test"), [(3, 2, 1), (2, 3, 1), (2, 2, 2)])
def test_wrong_counts(cub200: Path, classes: int, train: int, test: int):
    with pytest.raises(ValueError, match=r"expected .* 'cub200', got .*; the files are incomplete or another version"):
        miniature("cub200", cub200, classes, train, test)


def test_real_counts_are_the_default(cub200: Path):
    with pytest.raises(ValueError, match="expected 200 classes in 'cub200', got 2"):
        load_splits(DataConfig(name="cub200", root=str(cub200)))


def test_listed_images_that_are_not_there(cub200: Path):
    (cub200 / "CUB_200_2011/images/002.Laysan_Albatross/y_1.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"all images of train in 'cub200', got 1 missing, first '.*y_1.jpg'"):
        miniature("cub200", cub200, 2, 2, 1)


def test_held_out_images_are_stratified_and_not_augmented(mini_imagenet: Path):
    splits = miniature("mini_imagenet", mini_imagenet, 3, 54, 6, val_fraction=0.5)
    assert Counter(splits.val.targets.tolist()) == {0: 9, 1: 9, 2: 9}
    assert not set(names(splits.val)) & set(names(splits.train))
    assert splits.train.transform.augment
    assert not splits.val.transform.augment


def test_info_says_what_is_in_use(folder: Path):
    info = load_splits(DataConfig(name="folder", root=str(folder))).info
    assert isinstance(info, DatasetInfo)
    assert (info.image_size, info.transform, info.mean) == (448, "paper", (0.485, 0.456, 0.406))
    half = (0.5, 0.5, 0.5)
    own = load_splits(
        DataConfig(name="folder", root=str(folder), image_size=12, transform="crop", mean=half, std=half)
    ).info
    assert (own.image_size, own.transform, own.mean, own.std) == (12, "crop", half, half)
