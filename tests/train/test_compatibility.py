"""Run folders in ``fixtures/`` of an earlier version: they load, evaluate, resume, are reported.

They come from ``train_run(load_config("config.toml"), folder, build=build)``. ``finished`` ran to
its end; ``interrupted`` was stopped by Ctrl-C in its fifth epoch, after the sixth of eight steps.
"""

import json
import shutil
import warnings
from pathlib import Path

import pytest
import torch

from isice import create_model
from isice.config import config_hash, load_config
from isice.inference import evaluate_run
from isice.report import write_report
from isice.train import load_trained, train_run
from isice.train.checkpoint import read_checkpoint

from ..cli._invoke import invoke

FIXTURES = Path(__file__).parent / "fixtures"
HASH = "1568e2a0cc31"
WHOLE_DIGITS = True  # the runs were trained on all
ONE_IMAGE = 1 / 450  # tolerance for the rounding of another machine


@pytest.fixture
def finished(tmp_path):
    return shutil.copytree(FIXTURES / "finished", tmp_path / "finished")


def build(config, splits):
    return create_model(
        "small_cnn", pooling=config.model.pooling, num_classes=10, reduce=config.model.reduce, in_chans=1, widths=(8,)
    )


def test_the_config_hash_is_unchanged(finished):
    record = json.loads((finished / "record.json").read_text(encoding="utf-8"))
    assert record["hash"] == HASH
    assert config_hash(load_config(finished / "config.toml")) == HASH
    assert config_hash(load_trained(finished).config) == HASH
    assert train_run(load_config(finished / "config.toml"), finished, resume="must") == record


def test_resuming_does_not_warn_about_keys_that_the_run_wrote(finished):
    assert "\nsplit = " in (finished / "config.toml").read_text(encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        assert "already finished" in invoke("train", "--resume", "--out", finished)


@pytest.mark.parametrize("which", ["best", "last"])
def test_a_checkpoint_evaluates_to_the_recorded_accuracy(finished, which):
    record = json.loads((finished / "record.json").read_text(encoding="utf-8"))
    for split, accuracy in record["accuracy"].items():
        scores = evaluate_run(finished, split=split, which=which, settings=["device=cpu"]).scores
        assert scores.top1 == pytest.approx(accuracy, abs=ONE_IMAGE)
    stored = json.loads((finished / "evaluation.json").read_text(encoding="utf-8"))["evaluations"]
    assert [(entry["split"], entry["which"]) for entry in stored] == (
        [("val", "best"), ("test", "best")]
        if which == "best"
        else [("test", "best"), ("val", "last"), ("test", "last")]
    )


def test_an_interrupted_run_resumes_to_the_same_result(finished, tmp_path):
    folder = shutil.copytree(FIXTURES / "interrupted", tmp_path / "interrupted")
    assert read_checkpoint(folder).meta["epoch"] == 4
    record = train_run(load_config(folder / "config.toml"), folder, build=build, resume="must")
    expected = json.loads((finished / "record.json").read_text(encoding="utf-8"))
    assert record["reported_epoch"] == expected["reported_epoch"]
    assert [session["epoch"] for session in record["sessions"]] == [1, 5]
    for name, accuracy in expected["accuracy"].items():
        assert record["accuracy"][name] == pytest.approx(accuracy, abs=0.02)
    weights = read_checkpoint(finished, "best").weights
    for name, value in read_checkpoint(folder, "best").weights.items():
        torch.testing.assert_close(value, weights[name], rtol=1e-2, atol=1e-2, msg=name)
    assert record.keys() >= expected.keys()  # later versions add fields
    assert sorted(path.relative_to(folder) for path in folder.rglob("*")) == sorted(
        path.relative_to(finished) for path in finished.rglob("*")
    )


def test_a_run_appears_in_a_report(finished):
    write_report(finished)
    page = (finished / "report.md").read_text(encoding="utf-8")
    assert "isice(n_iter=2)" in page
    assert "66.89" in page or "66.9" in page
