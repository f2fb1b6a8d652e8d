"""Several processes run one sweep in one folder; children of a sweep end with it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from isice.experiments.loader import load_experiment
from isice.experiments.runner import run_experiment
from isice.run_lock import RunInUse, run_lock

ROOT = Path(__file__).parents[2]


def start(module, *arguments):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", f"tests.experiments.{module}", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def computed(folder):
    return [path.read_text().split() for path in sorted(folder.glob("*/computed"))]


def test_a_second_process_shares_the_sweep_and_takes_over_from_a_dead_one(tmp_path):
    cells = len(load_experiment("digits").cells())
    slow = start("_shared_sweep", tmp_path, "slow")
    try:
        wait_for(lambda: computed(tmp_path))
        other = start("_shared_sweep", tmp_path, "other")
        wait_for(lambda: len(computed(tmp_path)) == cells)  # all but the cell of the first process
        assert other.poll() is None
    finally:
        slow.kill()
        slow.wait()
    text, _ = other.communicate(timeout=60)
    assert f"left to process {slow.pid} on " in text
    assert f"done {cells}, skipped 0, failed 0" in text
    found = computed(tmp_path)
    assert sorted(found) == [["other"]] * (cells - 1) + [["slow", "other"]]
    assert not list(tmp_path.glob("*/run.lock"))


def test_two_processes_compute_every_cell_once(tmp_path):
    both = [start("_shared_sweep", tmp_path, name) for name in ("one", "two")]
    texts = [process.communicate(timeout=120)[0] for process in both]
    assert all("failed 0" in text for text in texts)
    assert all(len(names) == 1 for names in computed(tmp_path))


def test_runs_of_several_processes_are_not_shared(tmp_path, monkeypatch):
    experiment = load_experiment("digits")
    held = start("_shared_sweep", tmp_path, "slow")
    try:
        wait_for(lambda: computed(tmp_path))
        with pytest.raises(RunInUse, match=f"process {held.pid} on "):
            run_experiment(experiment, tmp_path, lambda *_: None, share=False)
    finally:
        held.kill()
        held.communicate()
    with run_lock(tmp_path / experiment.cells()[0].name):
        pass


def is_alive(pid):
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_children_end_with_their_parent(tmp_path, number):
    parent = start("_sleeping_sweep", tmp_path)
    try:
        pids = wait_for(lambda: len(list(tmp_path.glob("*/pid"))) == 2 and list(tmp_path.glob("*/pid")))
        children = [int(wait_for(path.read_text)) for path in pids]
        assert all(map(is_alive, children))
    finally:
        parent.send_signal(number)
        parent.communicate()
    wait_for(lambda: not any(map(is_alive, children)), 20)


def test_the_watch_ends_a_child_without_the_help_of_linux(tmp_path, monkeypatch):
    parent = start("_sleeping_sweep", tmp_path, "no-prctl")
    try:
        pids = wait_for(lambda: len(list(tmp_path.glob("*/pid"))) == 2 and list(tmp_path.glob("*/pid")))
        children = [int(wait_for(path.read_text)) for path in pids]
    finally:
        parent.kill()
        parent.communicate()
    wait_for(lambda: not any(map(is_alive, children)), 20)
