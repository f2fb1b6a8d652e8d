"""Lists of datasets that are damaged, disagree or name files elsewhere: a message, no traceback."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from isice.config import DataConfig
from isice.data import dataset_info


def load(name: str, root: Path) -> None:
    dataset_info(name).load(DataConfig(name=name, root=str(root)))


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("images.txt", "1 a/x_1.jpg\n", "same images in images.txt and train_test_split.txt.*'2', '3'"),
        ("image_class_labels.txt", "1 1\n2 1\n", "same images in image_class_labels.txt and train_test_split.txt.*'3'"),
        ("image_class_labels.txt", "1 1\n2 1\n3 9\n", "expected only the 2 classes"),
        ("train_test_split.txt", "1 1\n2 0\n3 1\n4 1\n", "'4'"),
        ("train_test_split.txt", "1 1\n2 yes\n3 1\n", "expected 0 or 1 for image 2"),
        ("train_test_split.txt", "1\n2 0\n3 1\n", "two columns in every line"),
        ("classes.txt", "\udcff", "expected a text file"),
    ],
)
def test_cub200(cub200: Path, file: str, text: str, message: str):
    (cub200 / "CUB_200_2011" / file).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=f"data: .*{message}"):
        load("cub200", cub200)


@pytest.mark.parametrize(
    ("text", "message"),
    [("filename,label\nonly.jpg\n", "columns filename,label in .*, got 'only.jpg'"), ("a\n\0x,\xff", "expected")],
)
def test_mini_imagenet(mini_imagenet: Path, text: str, message: str):
    (mini_imagenet / "val.csv").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=f"data: .*{message}"):
        load("mini_imagenet", mini_imagenet)


@pytest.mark.parametrize("key", ["images", "annotations", "categories"])
def test_inaturalist2017_without_a_key(inaturalist2017: Path, key: str):
    path = inaturalist2017 / "train2017.json"
    path.write_text(json.dumps({name: rows for name, rows in json.loads(path.read_text()).items() if name != key}))
    with pytest.raises(ValueError, match=f"data: expected lists in the format of iNaturalist.*without '{key}'"):
        load("inaturalist2017", inaturalist2017)


@pytest.mark.parametrize(("content", "message"), [("[]", "a JSON object"), ('{"images": 3}', "the format")])
def test_inaturalist2017_of_another_format(inaturalist2017: Path, content: str, message: str):
    (inaturalist2017 / "val2017.json").write_text(content)
    with pytest.raises(ValueError, match=f"data: expected .*{message}"):
        load("inaturalist2017", inaturalist2017)


def test_inaturalist2017_with_an_image_without_annotation(inaturalist2017: Path):
    path = inaturalist2017 / "train2017.json"
    content = json.loads(path.read_text())
    content["annotations"] = content["annotations"][:1]
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"data: expected an annotation for every image.*none for the images '7', '8'"):
        load("inaturalist2017", inaturalist2017)


def flip(path: Path, place: int, bits: int = 0x80) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= bits
    path.write_bytes(content)


@pytest.mark.parametrize("file", ["devkit/cars_train_annos.mat", "devkit/cars_meta.mat"])
@pytest.mark.parametrize("kept", [0, 128, 300])
def test_cars_with_an_incomplete_list(cars: Path, file: str, kept: int):
    path = cars / "stanford_cars" / file
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=rf"data: expected a list .*{path.name}', got a damaged file \(.*Error"):
        load("cars", cars)


def test_cars_with_a_list_that_crashes_its_reader(cars: Path):
    flip(cars / "stanford_cars" / "cars_test_annos_withlabels.mat", 345)  # scipy 1.17.1 ends with SIGSEGV
    with pytest.raises(ValueError, match=r"data: expected a list 'annotations'.*got a damaged file"):
        load("cars", cars)


def write_cars(root: Path, name: str, label: int) -> None:
    rows = np.array([(name, label), ("00001.jpg", 1)], dtype=[("fname", object), ("class", np.uint8)])
    scipy.io.savemat(root / "stanford_cars" / "cars_test_annos_withlabels.mat", {"annotations": rows})


@pytest.mark.parametrize("label", [0, 3])
def test_cars_with_a_class_that_has_no_name(cars: Path, label: int):
    write_cars(cars, "00001.jpg", label)
    with pytest.raises(ValueError, match=f"data: expected only the 2 classes of 'cars', got also '{label}'"):
        load("cars", cars)


@pytest.mark.parametrize(
    ("dataset", "file", "text"),
    [
        ("aircraft", "fgvc-aircraft-2013b/data/images_variant_test.txt", "0000003 Boeing 9\n"),
        ("aircraft", "fgvc-aircraft-2013b/data/variants.txt", "707-320\n"),
        ("dtd", "dtd/dtd/labels/test1.txt", "unknown.jpg\n"),
        ("aircraft", "fgvc-aircraft-2013b/data/images_variant_test.txt", "0000003\n"),
    ],
)
def test_lists_that_torchvision_reads(request: pytest.FixtureRequest, dataset: str, file: str, text: str):
    root = request.getfixturevalue(dataset)
    (root / file).write_text(text)
    with pytest.raises((ValueError, OSError), match=f"data: expected (lists of )?'{dataset}'"):
        load(dataset, root)


ELSEWHERE = ["../../secret.jpg", "/etc/secret.jpg", "a/../../../secret.jpg"]


@pytest.mark.parametrize("name", ELSEWHERE)
@pytest.mark.parametrize(
    "dataset", ["cub200", "mit_indoor67", "mini_imagenet", "inaturalist2017", "aircraft", "dtd", "cars"]
)
def test_lists_name_no_files_elsewhere(request: pytest.FixtureRequest, dataset: str, name: str):
    root = request.getfixturevalue(dataset)
    if dataset == "cub200":
        (root / "CUB_200_2011" / "images.txt").write_text(f"1 {name}\n2 b.jpg\n3 c.jpg\n")
    elif dataset == "mit_indoor67":
        (root / "TrainImages.txt").write_text(f"{name}\n")
    elif dataset == "mini_imagenet":
        (root / "train.csv").write_text(f"filename,label\n{name},n01532829\n")
    elif dataset == "inaturalist2017":
        path = root / "val2017.json"
        path.write_text(path.read_text().replace("train_val_images/Aves/Turdus merula/3.jpg", name))
    elif dataset == "cars":
        write_cars(root, name, 1)
    elif dataset == "aircraft":
        path = root / "fgvc-aircraft-2013b" / "data" / "images_variant_test.txt"
        deep = f"../../../../{name}".removesuffix(".jpg") if name[0] != "/" else name.removesuffix(".jpg")
        path.write_text(f"{deep} Boeing 717\n")
    else:
        deep = "../../../../banded/x.jpg" if name[0] != "/" else name
        (root / "dtd" / "dtd" / "labels" / "test1.txt").write_text(f"{deep}\n")
    with pytest.raises((ValueError, OSError), match=r"data: expected lists to name files in|data: expected 'dtd' in"):
        load(dataset, root)
