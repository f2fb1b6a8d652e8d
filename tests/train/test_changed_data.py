"""Resuming on data that changed: what changed is said before a step is taken, and force insists."""

import json
import shutil

import pytest

from isice.config import override
from isice.train import train_run
from isice.train.checkpoint import read_checkpoint
from isice.train.trainer import Trainer

from ._birds import config, make_pictures
from ._tiny import TINY, build_linear


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Images, and a run on them that was interrupted after its first epoch."""
    folder = tmp_path_factory.mktemp("stopped")
    make_pictures(folder / "pictures")
    original = Trainer._step

    def step(self, epoch, *arguments):
        if epoch == 2:
            raise KeyboardInterrupt
        return original(self, epoch, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_step", step)
        with pytest.raises(KeyboardInterrupt):
            train_run(config(folder / "pictures", "optim.epochs=2"), folder / "run")
    return folder


def add(root):
    shutil.copy(root / "train/crow/0.png", root / "train/crow/new.png")


def remove(root):
    (root / "test/wren/1.png").unlink()


def rename_class(root):
    for split in ("train", "val", "test"):
        (root / split / "crow").rename(root / split / "zebra")


def rename_file(root):
    (root / "train/crow/0.png").rename(root / "train/crow/00.png")


def swap_labels(root):
    """The images of two classes, with their names."""
    (root / "train/crow").rename(root / "train/other")
    (root / "train/finch").rename(root / "train/crow")
    (root / "train/other").rename(root / "train/finch")


def change_pixels(root):
    """Without changing the size of the file, as in an uncompressed format."""
    path = root / "train/heron/3.png"
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)


CHANGES = {
    add: "train has 31 images instead of 30",
    remove: "test has 19 images instead of 20",
    rename_class: "class 0 is 'finch' instead of 'crow'",
    rename_file: "train differs in the names of its files",
    swap_labels: "train differs in the sizes of its files, the content of its images|train differs in the content",
    change_pixels: "train differs in the content of its images",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_is_said_before_a_step_is_taken(stopped, tmp_path, change, monkeypatch):
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    before = (tmp_path / "run/checkpoints/last/meta.json").read_bytes()
    change(tmp_path / "pictures")
    monkeypatch.setattr(Trainer, "_step", lambda *_: pytest.fail("a step was taken"))
    with pytest.raises(ValueError, match=CHANGES[change]):
        train_run(config(tmp_path / "pictures", "optim.epochs=2"), tmp_path / "run")
    assert (tmp_path / "run/checkpoints/last/meta.json").read_bytes() == before


def test_force_insists_and_the_record_says_so(stopped, tmp_path):
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    add(tmp_path / "pictures")
    settings = config(tmp_path / "pictures", "optim.epochs=2")
    with pytest.warns(UserWarning, match="resuming on other data, as asked for: train has 31 images instead of 30"):
        record = train_run(settings, tmp_path / "run", force=True)
    assert record["sessions"][0]["data_changed_afterwards"] == ["train has 31 images instead of 30"]
    assert read_checkpoint(tmp_path / "run").meta["data"]["splits"]["train"]["images"] == 31


def test_data_may_move(stopped, tmp_path):
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    (tmp_path / "pictures").rename(tmp_path / "moved")
    record = train_run(config(tmp_path / "moved", "optim.epochs=2"), tmp_path / "run")
    assert len(record["sessions"]) == 2
    assert "data_changed_afterwards" not in record["sessions"][0]


def test_checkpoints_without_a_fingerprint_resume(stopped, tmp_path):
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "run/checkpoints/last/meta.json"
    meta = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in meta.items() if key not in ("data", "sha256")}))
    add(tmp_path / "pictures")
    assert train_run(config(tmp_path / "pictures", "optim.epochs=2"), tmp_path / "run")["status"] == "finished"


def test_embedded_data_has_a_fingerprint(tmp_path):
    train_run(override(TINY, ["optim.epochs=1"]), tmp_path, build=build_linear)
    splits = read_checkpoint(tmp_path).meta["data"]["splits"]
    assert {name: found["images"] for name, found in splits.items()} == {"train": 539, "val": 135, "test": 225}
    assert len({found["sample"] for found in splits.values()}) == 3
