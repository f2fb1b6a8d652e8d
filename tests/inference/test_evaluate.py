"""Evaluation of a run, against predictions computed by hand from the files and the checkpoint."""

import json
import os
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import accuracy_score, confusion_matrix

from isice.inference.evaluate import evaluate_run
from isice.records import read_evaluations
from isice.train import load_trained, train_run

from ..train._birds import CLASSES, config, make_pictures, make_run, make_untrained

MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("evaluation")
    make_pictures(place / "pictures", test=6)
    for name in ("crow", "wren"):  # mistakes to be found: pictures in the wrong folder
        shutil.copy(place / "pictures/test/robin/0.png", place / f"pictures/test/{name}/strange.png")
    # At their own size pictures are not resampled, so that the oracle need not resample either.
    make_run(place, "data.image_size=12")
    return place


def normalised(path):
    """Read and normalise an image."""
    with Image.open(path) as image:
        pixels = np.asarray(image, dtype=np.float64) / 255
    return torch.from_numpy((pixels - MEAN) / STD).permute(2, 0, 1).float()


def by_hand(folder, part, *, flip):
    """Return probabilities and labels of a split, in the order of the files."""
    files = sorted((folder / "pictures" / part).rglob("*.png"))
    images = torch.stack([normalised(file) for file in files])
    model = load_trained(folder / "run").model
    with torch.no_grad():
        found = model(images).softmax(dim=1)
        if flip:
            found = (found + model(torch.flip(images, dims=[3])).softmax(dim=1)) / 2
    return found.numpy(), np.array([CLASSES.index(file.parent.name) for file in files])


@pytest.mark.parametrize("split", ["test", "val", "train"])
@pytest.mark.parametrize("flip", [False, True])
def test_scores_are_those_computed_by_hand(folder, split, flip):
    probabilities, true = by_hand(folder, split, flip=flip)
    scores = evaluate_run(folder / "run", split=split, flip=flip, settings=["device=cpu"]).scores
    predicted = probabilities.argmax(axis=1)
    assert scores.images == len(true)
    assert scores.top1 == pytest.approx(accuracy_score(true, predicted))
    assert np.array_equal(scores.confusion.numpy(), confusion_matrix(true, predicted, labels=range(5)))


def test_test_accuracy_is_that_of_the_record(folder):
    record = json.loads((folder / "run" / "record.json").read_text(encoding="utf-8"))
    scores = evaluate_run(folder / "run").scores
    assert scores.top1 == pytest.approx(record["accuracy"]["test"])
    assert scores.top1 < 1  # the strange pictures
    assert scores.per_class[0] == pytest.approx(6 / 7)


def test_last_is_another_checkpoint_than_best(folder):
    best, last = (evaluate_run(folder / "run", which=which) for which in ("best", "last"))
    assert (best.facts["epoch"], last.facts["epoch"]) == (load_trained(folder / "run").epoch, 6)
    assert best.facts["epoch"] < 6
    assert last.scores.ece != best.scores.ece


def test_the_file_keeps_one_entry_per_split_and_checkpoint(folder):
    path = folder / "run" / "evaluation.json"
    path.unlink(missing_ok=True)
    for options in ({}, {"split": "val"}, {"flip": True}, {}):
        evaluate_run(folder / "run", **options)
    content = json.loads(path.read_text(encoding="utf-8"))
    asked = [(entry["split"], entry["flip"]) for entry in content["evaluations"]]
    assert asked == [("val", False), ("test", True), ("test", False)]
    entry = content["evaluations"][-1]
    assert entry["classes"] == list(CLASSES)
    assert sum(count for _, _, count in entry["confusion"]) == entry["images"] == 32
    assert entry["top1_interval"][0] < entry["top1"] < entry["top1_interval"][1]
    assert {"commit", "versions", "hardware", "precision", "run", "seconds"} <= entry.keys()


def test_a_read_only_folder_is_refused_before_anything_is_computed(folder, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(PermissionError, match=r"evaluation.json to .* got a read-only folder"):
        evaluate_run(folder / "run", track=lambda _: pytest.fail("computed"))


def test_training_again_removes_earlier_evaluations(tmp_path):
    run = make_run(tmp_path, "optim.epochs=1")
    evaluate_run(run, split="val")
    train_run(config(tmp_path / "pictures", "optim.epochs=1"), run, resume="never")
    assert [entry["split"] for entry in read_evaluations(run)] == ["test"]


def test_the_machine_of_training_does_not_matter(tmp_path):
    run = make_run(tmp_path, "optim.epochs=1", "precision=bf16")
    meta = run / "checkpoints" / "best" / "meta.json"
    content = json.loads(meta.read_text(encoding="utf-8"))
    content["config"]["device"], content["config"]["data"]["cache"] = "cuda:3", "gpu"
    del content["sha256"], content["data"]
    meta.write_text(json.dumps(content), encoding="utf-8")
    if not torch.cuda.is_available():
        assert evaluate_run(run).facts["precision"] == "fp32"
    assert evaluate_run(run, settings=["device=cpu", "precision=bf16"]).facts["precision"] == "bf16"
    shutil.move(tmp_path / "pictures", tmp_path / "moved")
    with pytest.raises(FileNotFoundError, match="pictures"):
        evaluate_run(run)
    assert evaluate_run(run, settings=[f"data.root={tmp_path / 'moved'}"]).scores.images == 20


class TestErrors:
    def test_folder_of_runs(self, folder):
        with pytest.raises(FileNotFoundError, match=r"got .*, a folder of runs; name one of them"):
            evaluate_run(folder)

    def test_unknown_split(self, folder):
        with pytest.raises(ValueError, match="Did you mean 'test'"):
            evaluate_run(folder / "run", split="tes")

    def test_wrong_number_of_classes(self, folder, tmp_path):
        make_pictures(tmp_path / "three", classes=3)
        with pytest.raises(ValueError, match="there are 3 classes instead of 5"):
            evaluate_run(folder / "run", settings=[f"data.root={tmp_path / 'three'}"])

    def test_other_classes(self, folder, tmp_path):
        shutil.copytree(folder / "pictures", tmp_path / "other")
        for part in ("train", "val", "test"):
            (tmp_path / "other" / part / "wren").rename(tmp_path / "other" / part / "tern")
        with pytest.raises(ValueError, match="class 4 is 'tern' instead of 'wren'"):
            evaluate_run(folder / "run", settings=[f"data.root={tmp_path / 'other'}"])

    def test_no_validation_part(self, tmp_path):
        make_untrained(tmp_path, "digits", in_chans=1, num_classes=10)
        with pytest.raises(ValueError, match="expected a validation split of 'digits', got none"):
            evaluate_run(tmp_path, split="val")
