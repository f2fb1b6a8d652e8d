"""The digits: sizes, determinism, parts that do not overlap, and the checks of the table."""

import pytest
import torch
from sklearn.datasets import load_digits as sklearn_digits

from isice.config import DataConfig
from isice.data import dataset_info, load_splits
from isice.data.sources import stratified_split


def as_rows(part) -> list[bytes]:
    return [
        image.numpy().tobytes() + label.to_bytes(8, "little") for image, label in (part[i] for i in range(len(part)))
    ]


def test_parts_are_the_whole_and_do_not_overlap():
    splits = load_splits(DataConfig(val_fraction=0.2))
    assert splits.sizes == {"train": 1078, "val": 269, "test": 450}
    rows = [as_rows(part) for part in (splits.train, splits.val, splits.test)]
    assert not set(rows[0]) & set(rows[1])
    assert not (set(rows[0]) | set(rows[1])) & set(rows[2])
    raw = sklearn_digits()
    images, labels = raw.images.astype("float32") / 16, raw.target.astype("int64")
    whole = [image.tobytes() + label.tobytes() for image, label in zip(images, labels, strict=True)]
    assert sorted(rows[0] + rows[1] + rows[2]) == sorted(whole)


def test_split_is_the_same_every_time_and_moves_with_its_seed():
    first, again = (load_splits(DataConfig(val_fraction=0.2)) for _ in range(2))
    assert as_rows(first.val) == as_rows(again.val)
    assert as_rows(first.test) == as_rows(again.test)
    moved = load_splits(DataConfig(val_fraction=0.2, split_seed=1))
    assert as_rows(first.val) != as_rows(moved.val)
    assert as_rows(first.test) == as_rows(moved.test)


def test_no_validation_unless_asked():
    splits = load_splits(DataConfig())
    assert splits.val is None
    assert splits.sizes == {"train": 1347, "test": 450}


def test_split_is_stratified():
    targets = torch.tensor([0] * 40 + [1] * 10)
    kept, held = stratified_split(targets, 0.2, seed=0)
    assert targets[held].bincount().tolist() == [8, 2]
    assert sorted(kept + held) == list(range(50))


def test_split_that_holds_out_nothing():
    with pytest.raises(ValueError, match="hold out an image"):
        stratified_split(torch.tensor([0, 1, 2]), 0.5, seed=0)


def test_image_size():
    splits = load_splits(DataConfig(image_size=12))
    image, _ = splits.train[0]
    assert image.shape == (1, 12, 12)
    assert 0.0 <= image.min() <= image.max() <= 1.0


def test_unknown_name_suggests():
    with pytest.raises(ValueError, match="Did you mean 'digits'"):
        dataset_info("digit")
