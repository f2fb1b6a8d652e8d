"""Links planted in a folder: temporary files never follow them."""

import os

import pytest

from isice._atomic import write_atomically
from isice.experiments import sweep
from isice.run_lock import LOCK_FILE, is_in_use, run_lock
from isice.train.logger import METRICS_FILE, MetricsLogger


def test_a_planted_link_is_not_followed(tmp_path):
    victim, run = tmp_path / "victim", tmp_path / "run"
    victim.write_text("precious")
    run.mkdir()
    for name in ("config.partial", f"config.{os.getpid()}.partial", "config.toml"):
        (run / name).symlink_to(victim)
    write_atomically(run / "config.toml", "new")
    assert victim.read_text() == "precious"
    assert (run / "config.toml").read_text() == "new"
    assert not (run / "config.toml").is_symlink()


def victim_of(run, name):
    """Return a file to which the entry ``name`` of a run folder links."""
    victim = run.with_name("victim")
    victim.write_text("precious")
    run.mkdir()
    (run / name).symlink_to(victim)
    return victim


def test_the_lock_follows_no_link(tmp_path):
    run = tmp_path / "run"
    victim = victim_of(run, LOCK_FILE)
    for use in (lambda: run_lock(run).__enter__(), lambda: is_in_use(run)):
        with pytest.raises(OSError, match=r"run: expected .*run\.lock' to be a file, got a link; remove it"):
            use()
    assert victim.read_text() == "precious"


def test_the_log_of_a_sweep_follows_no_link(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "end_with_parent", lambda parent: None)
    run = tmp_path / "run"
    victim = victim_of(run, sweep.LOG_FILE)
    with pytest.raises(OSError, match=r"log\.txt' to be a file, got a link"):
        sweep._work(lambda *_: print("written"), None, run, "label", os.getppid())
    assert victim.read_text() == "precious"


def test_metrics_follow_no_link(tmp_path):
    run = tmp_path / "run"
    victim = victim_of(run, METRICS_FILE)
    logger = MetricsLogger(run, [], tensorboard=False)
    logger.append({"epoch": 1})
    assert victim.read_text() == "precious"
    (run / METRICS_FILE).unlink()
    (run / METRICS_FILE).symlink_to(victim)
    with pytest.raises(OSError, match="got a link"):
        logger.append({"epoch": 2})
    assert victim.read_text() == "precious"
