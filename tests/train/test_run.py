"""A run: accuracy, reproducibility, files, resuming of finished runs, and records of failures."""

import json
import time

import numpy as np
import pytest
import torch

from isice.config import config_hash, load_config, override
from isice.data import load_splits
from isice.train import load_trained, train_run
from isice.train.logger import read_metrics
from isice.train.timing import PhaseTimer
from isice.train.trainer import Trainer

from ._tiny import TINY, Linear, build_linear, weights_of, without_times


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return folder, train_run(override(TINY, ["tensorboard=true"]), folder)


def test_training_learns_the_digits(trained):
    _, record = trained
    assert record["accuracy"]["test"] > 0.4  # chance is 0.1
    assert record["epochs"][-1]["train_loss"] < record["epochs"][0]["train_loss"]


def test_the_record_says_everything(trained):
    folder, record = trained
    assert json.loads((folder / "record.json").read_text(encoding="utf-8")) == record
    assert not list(folder.rglob("*.partial"))
    assert not list(folder.rglob("*.previous"))
    assert record["status"] == "finished"
    assert record["hash"] == config_hash(TINY)
    assert record["images"] == {"train": 539, "val": 135, "test": 225}
    assert record["versions"]["torch"] == torch.__version__.split("+")[0]
    assert record["hardware"]["device"] == "cpu"
    parameters = record["parameters"]
    assert parameters["total"] == sum(n for name, n in parameters.items() if name != "total")
    assert parameters["classifier"] == 10 * (8 * 9 // 2) + 10
    assert [row["epoch"] for row in record["epochs"]] == [1, 2]
    assert record["peak_memory"]["host_bytes"] > 2**20
    assert record["reported_epoch"] == {"epoch": 2, "chosen_on": "none: the last epoch"}
    assert len(record["sessions"]) == record["processes"] == 1


def test_the_record_says_where_time_went_outside_the_epochs(trained):
    _, record = trained
    outside = dict(record["seconds_outside_epochs"])
    assert outside.pop("process") >= 0
    assert list(outside) == ["start", "data", "checkpoints", "evaluate", "finish"]
    assert min(outside.values()) > 0
    accounted = sum(row["seconds"] for row in record["epochs"]) + sum(outside.values())
    assert 0.7 * record["seconds"] < accounted < 1.001 * record["seconds"]


def test_a_phase_is_counted_without_those_inside_it():
    timer = PhaseTimer()
    with timer("finish"), timer("checkpoints"):
        time.sleep(0.02)
    assert timer.seconds["checkpoints"] >= 0.02
    assert timer.seconds["finish"] < 0.01


@pytest.mark.parametrize(("seconds", "saved"), [(1e9, [1, 3]), (-1.0, [1, 2, 3])])
def test_epochs_soon_after_a_checkpoint_write_none(tmp_path, monkeypatch, seconds, saved):
    epochs, save = [], Trainer.save_last
    monkeypatch.setattr("isice.train.trainer.SAVE_SECONDS", seconds)
    monkeypatch.setattr(Trainer, "save_last", lambda self: (epochs.append(self.state.done), save(self)))
    train_run(override(TINY, ["optim.epochs=3", "data.val_fraction=0"]), tmp_path, build=build_linear)
    assert epochs == saved


def test_the_folder(trained):
    folder, record = trained
    assert load_config(folder / "config.toml") == override(TINY, ["tensorboard=true"])
    assert read_metrics(folder) == record["epochs"]
    assert list((folder / "tensorboard").glob("events*"))
    assert weights_of(folder, "last") == weights_of(folder, "best")


def test_load_trained_predicts_what_the_record_says(trained):
    folder, record = trained
    loaded = load_trained(folder)
    assert not loaded.model.training
    assert loaded.classes == tuple("0123456789")
    assert loaded.record == record
    assert loaded.epoch == 2
    test = load_splits(loaded.config.data).test
    images, labels = zip(*[test[index] for index in range(len(test))], strict=True)
    with torch.no_grad():
        correct = loaded.model(torch.stack(images)).argmax(dim=1) == torch.tensor(labels)
    assert correct.double().mean().item() == pytest.approx(record["accuracy"]["test"], abs=1e-9)


def test_a_finished_run_is_not_trained_again(trained, monkeypatch):
    folder, record = trained
    monkeypatch.setattr("isice.train.run.create_fabric", None)
    assert train_run(TINY, folder) == train_run(TINY, folder, resume="must") == record


def test_the_arrays_are_the_heads_matrices(trained):
    folder, _ = trained
    with np.load(folder / "arrays.npz", allow_pickle=False) as arrays:
        assert arrays["matrices"].shape == (10, 8, 8)
        np.testing.assert_allclose(arrays["matrices"], arrays["matrices"].swapaxes(1, 2), atol=1e-6)
        assert arrays["examples"].shape == (10, 8, 8, 1)


def test_same_seed_same_result(trained, tmp_path):
    _, first = trained
    again = train_run(TINY, tmp_path)
    assert without_times(again["epochs"]) == without_times(first["epochs"])
    assert again["accuracy"] == first["accuracy"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["device=quantum"], "expected a device like"),
        (["data.name=folder", "data.root=nowhere"], "'nowhere', which does not exist"),
        (["model.pooling=isic"], "Did you mean 'isice'"),
        (["model.checkpoint_path=nowhere.safetensors"], "nowhere.safetensors"),
    ],
)
def test_a_refused_run_leaves_nothing_but_in_a_sweep_its_record(tmp_path, settings, message):
    config, folder = override(TINY, settings), tmp_path / "run"
    with pytest.raises((ValueError, OSError), match=message):
        train_run(config, folder)
    assert not folder.exists()
    with pytest.raises((ValueError, OSError), match=message):
        train_run(config, folder, record_refusal=True)
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    assert (record["status"], [path.name for path in folder.iterdir()]) == ("failed", ["record.json"])


def test_a_refused_run_does_not_cost_an_earlier_one(tmp_path):
    train_run(override(TINY, ["optim.epochs=1"]), tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(OSError, match="nowhere"):
        train_run(override(TINY, ["data.name=folder", "data.root=nowhere"]), tmp_path, resume="never")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_bf16_trains(tmp_path):
    record = train_run(override(TINY, ["precision=bf16", "optim.epochs=1"]), tmp_path)
    assert np.isfinite(record["epochs"][0]["train_loss"])


def test_threads_are_set_for_the_run_only(tmp_path):
    before, seen = torch.get_num_threads(), []
    other = before + 1

    def build(config, splits):
        seen.append(torch.get_num_threads())
        return Linear()

    record = train_run(override(TINY, [f"threads={other}", "optim.epochs=1"]), tmp_path, build=build)
    assert seen == [other]
    assert record["hardware"]["threads"] == other
    assert torch.get_num_threads() == before


def test_another_seed_gives_another_result(trained, tmp_path):
    _, first = trained
    again = train_run(override(TINY, ["seed=1", "optim.epochs=1"]), tmp_path)
    assert again["epochs"][0]["train_loss"] != first["epochs"][0]["train_loss"]


@pytest.mark.parametrize(
    ("select_on", "chosen_on"), [("auto", "the validation part"), ("test", "the test part, as asked for")]
)
def test_the_reported_epoch_is_the_best_and_the_record_says_where(tmp_path, select_on, chosen_on):
    # A rate this high makes accuracies go up and down, so that the best epoch is rarely the last.
    settings = [f"select_on={select_on}", "optim.lr=3", "optim.schedule=constant", "optim.epochs=6"]
    record = train_run(override(TINY, settings), tmp_path, build=build_linear)
    part = "val" if select_on == "auto" else "test"
    accuracies = [row[f"{part}_accuracy"] for row in record["epochs"]]
    best = max(accuracies)
    assert record["reported_epoch"] == {"epoch": 1 + accuracies.index(best), "chosen_on": chosen_on}
    assert record["accuracy"][part] == best
    assert ("test_accuracy" in record["epochs"][0]) == (select_on == "test")


def test_selecting_on_validation_needs_a_validation_part(tmp_path):
    with pytest.raises(ValueError, match=r"validation split for select_on=val.*data\.val_fraction"):
        train_run(override(TINY, ["select_on=val", "data.val_fraction=0"]), tmp_path, build=build_linear)


def test_a_custom_model_is_not_guessed(tmp_path):
    train_run(override(TINY, ["optim.epochs=1"]), tmp_path, build=build_linear)
    with pytest.raises(ValueError, match="got a custom model"):
        load_trained(tmp_path)


@pytest.mark.gpu
def test_trains_on_a_gpu(tmp_path):
    record = train_run(override(TINY, ["device=cuda"]), tmp_path)
    assert record["accuracy"]["test"] > 0.4
    assert record["hardware"]["gpu"]
