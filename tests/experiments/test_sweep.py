"""Several processes: each run in its own, on its device; a killed one costs nothing else."""

import json
import multiprocessing
import os
import signal
import threading
import time

import pytest

from isice.config import config_hash
from isice.experiments import sweep
from isice.experiments.loader import load_experiment
from isice.experiments.runner import run_experiment
from isice.records import find_records
from isice.report.report_page import build_report
from isice.report.results import load_results


def job(config, folder, label):
    """Stands for training: leaves a record, fails for precision, is killed for isice."""
    print(f"hello from {label}")
    worker = multiprocessing.get_context("fork").Process(target=int)  # as a loader of images does
    worker.start()
    worker.join()
    if config.model.pooling == "isice":
        os.kill(os.getpid(), signal.SIGKILL)
    failed = config.model.pooling == "precision"
    record = {"status": "failed" if failed else "finished", "hash": config_hash(config), "started": "2026"}
    record |= {"error": "ValueError: it broke"} if failed else {"device": config.device, "process": os.getpid()}
    (folder / "record.json").write_text(json.dumps(record))
    if failed:
        raise ValueError("it broke")


def test_a_sweep_on_two_devices(tmp_path):
    told = []
    outcome = run_experiment(load_experiment("digits"), tmp_path, job, devices=["cpu:0", "cpu:1"], tell=told.append)
    assert len(outcome.done) == 2
    errors = sorted(outcome.failed.values())
    assert errors[0] == "ValueError: it broke"
    assert errors[1].startswith("the process ended with status -9; see log.txt")
    finished = [record for record in find_records(tmp_path) if record["status"] == "finished"]
    assert {record["device"] for record in finished} <= {"cpu:0", "cpu:1"}
    assert len({record["process"] for record in finished} | {os.getpid()}) == 3
    assert len(find_records(tmp_path)) == 4
    assert sum("started on cpu:" in line for line in told) == 4
    logs = [path.read_text() for path in tmp_path.glob("*/log.txt")]
    assert sorted(text.splitlines()[0] for text in logs) == [
        f"hello from {name}" for name in ("gap", "isice", "isqrt_cov", "precision")
    ]


def be_killed(config, folder, label):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_measurement_is_reported_as_failed(tmp_path):
    experiment = load_experiment("memory")
    run_experiment(experiment, tmp_path, be_killed, cells=experiment.cells()[:1], devices=["cpu"])
    (record,) = find_records(tmp_path)
    assert (record["kind"], record["status"]) == ("bench", "failed")
    (comparison,) = build_report(load_results(tmp_path)).comparisons
    assert sum(item.failed for _, items in comparison.rows for item in items) > 0


def sleep(config, folder, label):
    """A run that never ends."""
    (folder / "pid").write_text(str(os.getpid()))
    time.sleep(600)


@pytest.fixture
def interruptible():
    """A process that was started in the background may ignore interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "GRACE_SECONDS", 0)
    cells = load_experiment("digits").cells()
    results = sweep.run_on_devices(cells, tmp_path, sleep, ["cpu"], tell=lambda line: None)

    def interrupt():
        while not list(tmp_path.glob("*/pid")):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        next(results)
    (path,) = tmp_path.glob("*/pid")  # the next cell was not begun
    deadline = time.monotonic() + 20
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.05)
    with pytest.raises(ProcessLookupError):
        os.kill(int(path.read_text()), 0)
