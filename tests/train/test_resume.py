"""A run killed at any moment resumes bit for bit; what cannot be resumed is an error."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from isice import _atomic
from isice.config import override
from isice.experiments.loader import load_experiment
from isice.experiments.runner import run_experiment
from isice.run_lock import is_in_use
from isice.train import load_trained, train_run
from isice.train.checkpoint import read_checkpoint
from isice.train.logger import read_metrics
from isice.train.trainer import Trainer

from ._killed import CONFIG, MOMENTS, WORKERS
from ._tiny import TINY, build_linear, weights_of, without_times

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Folders of runs that were killed, by moment."""
    folder = tmp_path_factory.mktemp("killed")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "tests.train._killed", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Folder and record of the same runs, never interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    return {config: (folder / str(i), train_run(config, folder / str(i))) for i, config in enumerate((CONFIG, WORKERS))}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_and_resumed_is_bit_identical(killed, whole, moment):
    config = MOMENTS[moment][-1]
    folder, (expected_folder, expected) = killed / moment, whole[config]
    assert not (folder / "record.json").exists()
    if moment == "mid_epoch":
        # It died in the last of eight steps of the second epoch: what is lost is
        # one step, not the epoch.
        position = read_checkpoint(folder).state["position"]
        assert (position["done"], position["step"]) == (1, 6)
    record = train_run(config, folder, resume="auto" if moment == "before_the_first_checkpoint" else "must")
    assert without_times(record["epochs"]) == without_times(expected["epochs"])
    assert without_times(read_metrics(folder)) == without_times(expected["epochs"])
    assert weights_of(folder, "last") == weights_of(expected_folder, "last")
    assert weights_of(folder, "best") == weights_of(expected_folder, "best")
    for key in ("accuracy", "reported_epoch"):
        assert record[key] == expected[key]
    assert len(record["sessions"]) == (1 if moment == "before_the_first_checkpoint" else 2)
    assert not [path for ending in ("partial", "previous") for path in folder.rglob(f"*.{ending}")]


@pytest.mark.slow
def test_killed_at_random_moments_is_bit_identical(tmp_path):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "tests.train._random_kills", str(tmp_path), "6", "0"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kills, runs = map(int, done.stdout.split())
    assert kills == 6
    whole = tmp_path / "whole"
    for folder in (tmp_path / f"run{number}" for number in range(runs)):
        assert json.loads((folder / "record.json").read_text())["status"] == "finished"
        assert without_times(read_metrics(folder)) == without_times(read_metrics(whole))
        for which in ("last", "best"):
            assert weights_of(folder, which) == weights_of(whole, which)
        assert not [*folder.rglob("*.partial"), *folder.rglob("*.previous")]
        assert not is_in_use(folder)


def test_workers_change_nothing(whole, tmp_path):
    _, expected = whole[WORKERS]
    record = train_run(override(WORKERS, ["data.workers=0"]), tmp_path)
    assert without_times(record["epochs"]) == without_times(expected["epochs"])


def interrupt_after(monkeypatch, steps):
    original, left = Trainer._step, [steps]

    def interrupting(*args):
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        return original(*args)

    monkeypatch.setattr(Trainer, "_step", interrupting)


@pytest.fixture
def interrupted(tmp_path, monkeypatch):
    """A run that was interrupted in its second epoch."""
    with monkeypatch.context() as patch:
        interrupt_after(patch, 20)
        with pytest.raises(KeyboardInterrupt):
            train_run(TINY, tmp_path, build=build_linear)
    return tmp_path


def test_interrupted_run_keeps_its_checkpoint_and_resumes(interrupted, tmp_path_factory):
    record = json.loads((interrupted / "record.json").read_text())
    assert record["status"] == "interrupted"
    assert [row["epoch"] for row in read_metrics(interrupted)] == [1]
    resumed = train_run(TINY, interrupted, build=build_linear)
    expected = train_run(TINY, tmp_path_factory.mktemp("whole"), build=build_linear)
    assert without_times(resumed["epochs"]) == without_times(expected["epochs"])
    assert [session["epoch"] for session in resumed["sessions"]] == [1, 2]


def test_an_experiment_resumes_its_killed_cell(tmp_path, monkeypatch):
    path = tmp_path / "two.toml"
    data = "data.val_fraction = 0.2\ndata.batch_size = 32"
    settings = "optim.epochs = 2\ndevice = 'cpu'\nthreads = 1\ntensorboard = false"
    path.write_text(f"[config]\n{data}\n{settings}\n[grid]\noptim.lr = [0.01, 0.02]\n")
    experiment = load_experiment(path)

    def train(config, folder, label):
        return train_run(config, folder, label=label, build=build_linear)

    with monkeypatch.context() as patch:
        interrupt_after(patch, 32 + 20)
        with pytest.raises(KeyboardInterrupt):
            run_experiment(experiment, tmp_path, train)
    outcome = run_experiment(experiment, tmp_path, train)
    assert (len(outcome.skipped), len(outcome.done)) == (1, 1)
    sessions = {
        cell.label: len(train(cell.config, tmp_path / cell.name, "")["sessions"]) for cell in experiment.cells()
    }
    assert sessions == {"0.01": 1, "0.02": 2}


def test_another_config_is_an_error(interrupted):
    other = override(TINY, ["optim.lr=0.5"])
    message = r"optim.lr = 0.01 instead of 0.5; use another folder, or start a new run"
    for resume in ("auto", "must"):
        with pytest.raises(ValueError, match=message):
            train_run(other, interrupted, build=build_linear, resume=resume)
    assert json.loads((interrupted / "record.json").read_text())["status"] == "interrupted"
    record = train_run(other, interrupted, build=build_linear, resume="never")
    assert len(record["sessions"]) == 1
    assert len(read_metrics(interrupted)) == 2


def test_another_config_than_the_finished_one_is_an_error(tmp_path):
    train_run(override(TINY, ["optim.epochs=1"]), tmp_path, build=build_linear)
    with pytest.raises(ValueError, match=r"optim\.epochs = 1 instead of 2"):
        train_run(TINY, tmp_path, build=build_linear)


def test_where_a_run_computes_may_change(interrupted):
    record = train_run(override(TINY, ["data.workers=1", "threads=2"]), interrupted, build=build_linear)
    assert record["status"] == "finished"


def test_lost_checkpoint_is_an_error(interrupted):
    shutil.rmtree(interrupted / "checkpoints")
    with pytest.raises(FileNotFoundError, match=r"expected the checkpoint of the epochs in .* remove the folder"):
        train_run(TINY, interrupted, build=build_linear)
    with pytest.raises(FileNotFoundError, match=r"got no checkpoint there; .* without --resume"):
        train_run(TINY, interrupted, build=build_linear, resume="must")


def test_nothing_to_resume_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="expected a run to resume"):
        train_run(TINY, tmp_path / "nowhere", resume="must")
    with pytest.raises(ValueError, match="resume to be one of 'auto', 'never', 'must'"):
        train_run(TINY, tmp_path, resume="maybe")


def test_another_model_is_an_error(interrupted):
    with pytest.raises(ValueError, match="the run used another model"):
        train_run(TINY, interrupted)


def test_full_disk_is_an_error_and_the_run_can_resume(tmp_path, monkeypatch):
    original, left = _atomic.write_synced, [4]

    def write(path, content):
        left[0] -= "checkpoints" in path.parts
        if left[0] < 0 and "checkpoints" in path.parts:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(_atomic, "write_synced", write)
        with pytest.raises(OSError, match="No space left on device; the previous one is intact"):
            train_run(TINY, tmp_path)
    assert read_checkpoint(tmp_path).meta["epoch"] == 1
    assert json.loads((tmp_path / "record.json").read_text())["status"] == "failed"
    record = train_run(TINY, tmp_path)
    assert record["status"] == "finished"
    assert load_trained(tmp_path).epoch == 2
