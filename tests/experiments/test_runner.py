"""Running a grid: skip by hash, failures recorded, Ctrl-C keeps what is finished."""

import json

import pytest

from isice.config import config_hash
from isice.experiments.loader import load_experiment
from isice.experiments.runner import run_experiment
from isice.records import find_records


class Trainer:
    """A stand-in for training: write a record, and fail for the given poolings."""

    def __init__(self, *failing, error=RuntimeError):
        self.failing, self.error, self.calls = failing, error, []

    def __call__(self, config, folder, label):
        self.calls.append(label)
        failed = config.model.pooling in self.failing
        if failed and self.error is KeyboardInterrupt:
            raise KeyboardInterrupt
        folder.mkdir(parents=True, exist_ok=True)
        record = {"status": "failed" if failed else "finished", "hash": config_hash(config)}
        record["started"] = f"2026-01-01T00:00:{len(self.calls):02}"
        (folder / "record.json").write_text(json.dumps(record))
        if failed:
            raise self.error("it broke")


@pytest.fixture
def demo():
    return load_experiment("digits")


def test_finished_cells_are_skipped(demo, tmp_path):
    first, second = Trainer(), Trainer()
    assert len(run_experiment(demo, tmp_path, first).done) == 4
    outcome = run_experiment(demo, tmp_path, second)
    assert second.calls == []
    assert len(outcome.skipped) == 4


def test_force_runs_again(demo, tmp_path):
    run_experiment(demo, tmp_path, Trainer())
    again = Trainer()
    run_experiment(demo, tmp_path, again, force=True)
    assert len(again.calls) == 4


def test_other_settings_are_other_runs(demo, tmp_path):
    run_experiment(demo, tmp_path, Trainer())
    changed = Trainer()
    run_experiment(demo.with_settings(["optim.lr=0.5"]), tmp_path, changed)
    assert len(changed.calls) == 4


def test_a_failed_cell_does_not_stop_the_others_and_is_run_again(demo, tmp_path):
    told = []
    outcome = run_experiment(demo, tmp_path, Trainer("isqrt_cov"), tell=told.append)
    assert len(outcome.done) == 3
    assert list(outcome.failed.values()) == ["RuntimeError: it broke"]
    assert told == ["isqrt_cov: failed: RuntimeError: it broke"]
    again = Trainer()
    run_experiment(demo, tmp_path, again)
    assert again.calls == ["isqrt_cov"]


def test_interrupt_stops_and_keeps_finished_records(demo, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_experiment(demo, tmp_path, Trainer("precision", error=KeyboardInterrupt))
    assert [record["status"] for record in find_records(tmp_path)] == ["finished", "finished"]
    rest = Trainer()
    run_experiment(demo, tmp_path, rest)
    assert rest.calls == ["precision", "isice"]


def test_records_are_read_in_order_with_their_folder(demo, tmp_path):
    run_experiment(demo, tmp_path, Trainer())
    records = find_records(tmp_path)
    assert [record["started"] for record in records] == sorted(record["started"] for record in records)
    assert all(str(tmp_path) in record["folder"] for record in records)
