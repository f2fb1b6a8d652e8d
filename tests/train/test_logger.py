"""metrics.jsonl and TensorBoard agree with the epochs of the checkpoint."""

import builtins
import importlib.machinery
import sys
import types

import pytest

from isice.config import override, to_dict
from isice.train import train_run
from isice.train.logger import MetricsLogger, WandbLogger, read_metrics

from ._tiny import TINY, build_linear

ROWS = [{"epoch": epoch, "train_loss": 1.0 / epoch} for epoch in (1, 2, 3)]


def scalars(folder, name="train_loss"):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_lines_are_appended(tmp_path):
    logger = MetricsLogger(tmp_path, [], tensorboard=False)
    for row in ROWS:
        logger.append(row)
    assert read_metrics(tmp_path) == ROWS
    assert not (tmp_path / "tensorboard").exists()


def test_resuming_drops_rows_after_the_checkpoint(tmp_path):
    for known in ([], ROWS[:1]):
        logger = MetricsLogger(tmp_path, known)
        for row in ROWS[len(known) :]:
            logger.append(row)
        logger.close()
    assert read_metrics(tmp_path) == ROWS
    assert scalars(tmp_path) == [(row["epoch"], pytest.approx(row["train_loss"])) for row in ROWS]


def test_a_truncated_line_is_ignored(tmp_path):
    MetricsLogger(tmp_path, ROWS, tensorboard=False)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 4, "train_')
    assert read_metrics(tmp_path) == ROWS


def test_validation_loss_is_in_tensorboard(tmp_path):
    train_run(override(TINY, ["optim.epochs=2", "tensorboard=true"]), tmp_path, build=build_linear)
    rows = read_metrics(tmp_path)
    assert scalars(tmp_path, "val_loss") == [(row["epoch"], pytest.approx(row["val_loss"])) for row in rows]


class FakeRun:
    def __init__(self, **settings):
        self.settings, self.logged, self.finished = settings, [], 0

    def log(self, metrics, step):
        self.logged.append((step, metrics))

    def finish(self):
        self.finished += 1


def test_weights_and_biases_gets_every_epoch(tmp_path, monkeypatch):
    runs = []
    fake = types.ModuleType("wandb")
    fake.__spec__ = importlib.machinery.ModuleSpec("wandb", None)
    fake.init = lambda **settings: runs.append(FakeRun(**settings)) or runs[-1]
    monkeypatch.setitem(sys.modules, "wandb", fake)
    config = override(TINY, ["wandb=birds"])
    train_run(config, tmp_path / "run", build=build_linear)
    (run,) = runs
    assert run.logged == [(row["epoch"], row) for row in read_metrics(tmp_path / "run")]
    assert run.finished == 1
    assert (run.settings["project"], run.settings["name"], run.settings["resume"]) == ("birds", "run", "allow")
    assert run.settings["config"] == to_dict(config)
    again, other = (WandbLogger(config, tmp_path / name) for name in ("run", "other"))
    for logger in (again, other):
        logger.log_metrics({}, step=3)
    assert runs[1].settings["id"] == run.settings["id"] != runs[2].settings["id"]


def test_weights_and_biases_missing_is_an_error_before_training(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ModuleNotFoundError, match="pip install wandb"):
        train_run(override(TINY, ["wandb=birds"]), tmp_path / "run", build=build_linear)
    assert not (tmp_path / "run").exists()


def test_without_tensorboard_there_is_a_warning(tmp_path, monkeypatch):
    real = builtins.__import__

    def missing(name, *args, **kwargs):
        if name.startswith("torch.utils.tensorboard"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.warns(UserWarning, match="tensorboard is not installed"):
        MetricsLogger(tmp_path, ROWS).append(ROWS[0])
