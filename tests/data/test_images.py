"""Decoding against Pillow; unreadable images are named, then stopped at or skipped and counted."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from isice.config import DataConfig
from isice.data import load_splits
from isice.data.images import BadImageError, find_bad_images, missing_files, read_image

from .conftest import save_image

pytestmark = pytest.mark.filterwarnings("ignore:The image decoding:DeprecationWarning")


def with_pillow(path: Path) -> torch.Tensor:
    return torch.from_numpy(np.array(Image.open(path).convert("RGB"))).permute(2, 0, 1)


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA", "CMYK", "1"])
@pytest.mark.parametrize("suffix", [".png", ".jpg", ".gif", ".webp", ".bmp", ".tif"])
def test_formats_and_colours(tmp_path: Path, mode: str, suffix: str):
    colours = save_image(tmp_path / "colours.png")
    image = Image.open(colours)
    path = tmp_path / f"image{suffix}"
    try:
        image.convert(mode).save(path)
    except (OSError, ValueError):
        pytest.skip(f"Pillow writes no {mode} as {suffix}")
    found = read_image(path)
    assert (found.shape, found.dtype) == ((3, 20, 24), torch.uint8)
    # Decoders round differently, and CMYK is converted by other formulas.
    tolerance = 24 if mode == "CMYK" else 4
    assert (found.int() - with_pillow(path).int()).abs().max() <= tolerance


def test_first_frame_of_an_animation(tmp_path: Path):
    frames = [Image.new("RGB", (6, 5), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert read_image(tmp_path / "a.gif")[:, 0, 0].tolist() == [255, 0, 0]


def test_orientation_is_ignored(tmp_path: Path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.open(save_image(tmp_path / "a.png")).save(tmp_path / "b.jpg", exif=exif)
    assert read_image(tmp_path / "b.jpg").shape == (3, 20, 24)


def test_name_that_is_not_ascii(tmp_path: Path):
    assert read_image(save_image(tmp_path / "Ärger Σ.jpg")).shape == (3, 20, 24)


def broken(path: Path, how: str) -> None:
    data = path.read_bytes()
    contents = {"empty": b"", "text": b"not an image", "cut": data[: len(data) // 2], "header": data[:20]}
    path.write_bytes(contents[how])


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
@pytest.mark.parametrize("how", ["empty", "text", "cut", "header"])
def test_broken_image_is_named(tmp_path: Path, how: str, suffix: str):
    path = save_image(tmp_path / f"image{suffix}", size=(240, 200))
    broken(path, how)
    with pytest.raises(BadImageError, match=rf"readable image, got '.*image{suffix}' \(.+\); repair or remove it"):
        read_image(path)


def test_a_file_of_another_format_is_described_without_pillows_buffer(tmp_path: Path):
    path = tmp_path / "page.jpg"
    path.write_text("<html>Not found</html>", encoding="utf-8")
    with pytest.raises(BadImageError, match=r"\(its format is unknown\)"):
        read_image(path)


def test_missing_files(tmp_path: Path):
    here = str(save_image(tmp_path / "a" / "here.jpg"))
    gone, nowhere = str(tmp_path / "a" / "gone.jpg"), str(tmp_path / "b" / "gone.jpg")
    assert missing_files([here, gone, nowhere]) == [gone, nowhere]


def test_find_bad_images(tmp_path: Path):
    paths = [str(save_image(tmp_path / f"{number}.jpg", number)) for number in range(5)]
    broken(Path(paths[1]), "cut")
    Path(paths[3]).unlink()
    bad = find_bad_images(paths)
    assert sorted(bad) == [1, 3]
    assert all(paths[index] in text for index, text in bad.items())


@pytest.mark.parametrize("workers", [0, 1])
def test_stop_names_the_image_also_from_a_worker(folder: Path, workers: int):
    broken(folder / "train" / "dog" / "1.jpg", "cut")
    train = load_splits(DataConfig(name="folder", root=str(folder), image_size=8)).train
    with pytest.raises(BadImageError, match=r"got '.*dog/1.jpg'"):
        list(DataLoader(train, 2, num_workers=workers))


def test_skip_leaves_out_and_counts(folder: Path):
    broken(folder / "train" / "dog" / "1.jpg", "cut")
    broken(folder / "test" / "cat" / "0.jpg", "text")
    config = DataConfig(name="folder", root=str(folder), image_size=8, on_bad_image="skip")
    with pytest.warns(UserWarning, match=r"skipped 2 unreadable images; the first: .*dog/1.jpg"):
        splits = load_splits(config)
    assert splits.sizes == {"train": 6, "test": 2}
    assert splits.train.targets.tolist() == [0] * 4 + [1] * 2
    assert splits.test.targets.tolist() == [0, 1]
    assert ["1.jpg" in splits.skipped[0], "0.jpg" in splits.skipped[1], len(splits.skipped)] == [True, True, 2]
    assert sum(len(labels) for _, labels in DataLoader(splits.train, 4)) == 6


def test_nothing_to_skip(folder: Path):
    splits = load_splits(DataConfig(name="folder", root=str(folder), on_bad_image="skip"))
    assert splits.skipped == ()
    assert splits.sizes == {"train": 7, "test": 3}


def test_class_of_which_nothing_is_readable(folder: Path):
    broken(folder / "test" / "dog" / "0.jpg", "text")
    config = DataConfig(name="folder", root=str(folder), on_bad_image="skip")
    with pytest.raises(
        ValueError, match="at least one readable image of every class in test, got none of 1 classes, first label 1"
    ):
        load_splits(config)
