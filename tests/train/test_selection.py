"""Early stopping, and the validation loss that is logged beside the accuracy."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from isice.config import OptimConfig, config_hash, override
from isice.data import load_splits
from isice.train import train_run
from isice.train.checkpoint import read_checkpoint
from isice.train.trainer import Trainer

from ._tiny import TINY, Linear, build_linear, weights_of, without_times

# The rate is too small to change a prediction, so that the first epoch stays the best.
STOPPING = override(TINY, ["optim.epochs=9", "optim.lr=1e-12", "optim.patience=2", "select_on=val"])


def test_a_run_stops_when_its_patience_ends(tmp_path):
    record = train_run(STOPPING, tmp_path, build=build_linear)
    assert [row["epoch"] for row in record["epochs"]] == [1, 2, 3]
    assert record["status"] == "finished"
    assert record["reported_epoch"]["epoch"] == 1


def test_a_run_that_improves_goes_on(tmp_path):
    config = override(TINY, ["optim.epochs=3", "optim.patience=1", "optim.schedule=constant", "select_on=val"])
    rows = train_run(config, tmp_path, build=build_linear)["epochs"]
    accuracy = [row["val_accuracy"] for row in rows]
    assert accuracy == sorted(set(accuracy))
    assert len(rows) == 3


def test_the_head_stage_is_trained_to_its_end(tmp_path):
    config = override(STOPPING, ["optim.head_epochs=4"])
    rows = train_run(config, tmp_path, build=build_linear)["epochs"]
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4, 5, 6]


def test_a_resumed_run_stops_at_the_same_epoch(tmp_path, monkeypatch):
    whole = train_run(STOPPING, tmp_path / "whole", build=build_linear)
    end_epoch = Trainer._end_epoch

    def stop_after_two(self, epoch):
        row = end_epoch(self, epoch)
        if epoch == 2:
            raise KeyboardInterrupt
        return row

    monkeypatch.setattr(Trainer, "_end_epoch", stop_after_two)
    with pytest.raises(KeyboardInterrupt):
        train_run(STOPPING, tmp_path / "parts", build=build_linear)
    monkeypatch.undo()
    parts = train_run(STOPPING, tmp_path / "parts", build=build_linear)
    assert without_times(parts["epochs"]) == without_times(whole["epochs"])
    assert weights_of(tmp_path / "parts") == weights_of(tmp_path / "whole")


def test_patience_without_a_validation_part_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"accuracy to watch for optim\.patience, got select_on=last; set data\."):
        train_run(override(TINY, ["optim.patience=2"]), tmp_path, build=build_linear)
    with pytest.raises(ValueError, match=r"optim\.swa_epochs or optim\.patience, got both"):
        OptimConfig(swa_epochs=2, patience=2)


@pytest.mark.parametrize("flip", [False, True])
def test_the_validation_loss_is_the_cross_entropy(tmp_path, flip):
    config = override(TINY, ["optim.epochs=1", f"eval_flip={str(flip).lower()}", "optim.label_smoothing=0.1"])
    row = train_run(config, tmp_path, build=build_linear)["epochs"][0]
    model, part = Linear(), load_splits(TINY.data).val
    model.load_state_dict(read_checkpoint(tmp_path, "last").weights)
    x = torch.stack([part[i][0] for i in range(len(part))])
    probabilities = [model(view).softmax(dim=1) for view in ([x, x.flip(-1)] if flip else [x])]
    expected = cross_entropy(torch.stack(probabilities).mean(0).log(), part.targets)
    assert row["val_loss"] == pytest.approx(expected.item(), rel=1e-5)


def test_settings_that_are_not_used_leave_the_hash():
    unset = ["optim.patience=none", "data.balanced=false", "wandb=project"]
    assert config_hash(override(TINY, unset)) == config_hash(TINY)
    assert config_hash(override(TINY, ["data.balanced=true"])) != config_hash(TINY)


@pytest.mark.parametrize("rate", ["1e-12", "0.5"])  # the first epoch is the best one, or a later one
def test_the_validation_images_are_evaluated_once_per_epoch(tmp_path, monkeypatch, rate):
    calls, evaluate = [], Trainer.evaluate
    monkeypatch.setattr(Trainer, "evaluate", lambda self, loader: calls.append(loader) or evaluate(self, loader))
    config = override(TINY, ["optim.epochs=3", f"optim.lr={rate}", "select_on=val"])
    record = train_run(config, tmp_path, build=build_linear)
    assert len(calls) == 3
    best = record["reported_epoch"]["epoch"]
    assert record["accuracy"]["val"] == record["epochs"][best - 1]["val_accuracy"]
    model, splits = Linear(), load_splits(config.data)
    model.load_state_dict(read_checkpoint(tmp_path, "best").weights)
    for name, split in (("val", splits.val), ("test", splits.test)):
        images, targets = torch.stack([image for image, _ in split]), split.targets
        accuracy = (model(images).argmax(dim=1) == targets).double().mean().item()
        assert record["accuracy"][name] == pytest.approx(accuracy)


def test_the_weights_of_an_earlier_epoch_are_evaluated(tmp_path, monkeypatch):
    found = iter([(0.9, 1.0), *[(0.1, 1.0)] * 9])
    monkeypatch.setattr(Trainer, "evaluate", lambda self, loader: next(found))
    config = override(TINY, ["optim.epochs=10", "select_on=val"])
    record = train_run(config, tmp_path, build=build_linear)
    assert record["reported_epoch"]["epoch"] == 1
    test, model, accuracy = load_splits(config.data).test, Linear(), {}
    images = torch.stack([image for image, _ in test])
    for which in ("best", "last"):
        model.load_state_dict(read_checkpoint(tmp_path, which).weights)
        accuracy[which] = (model(images).argmax(dim=1) == test.targets).double().mean().item()
    assert record["accuracy"]["test"] == pytest.approx(accuracy["best"])
    assert accuracy["best"] != accuracy["last"]
