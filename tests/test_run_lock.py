"""The lock of a run folder: it names its holder, and a process that dies leaves it free."""

import errno
import fcntl
import multiprocessing
import os
import re
import signal
import socket
import time

import pytest

from isice.run_lock import LOCK_FILE, RunInUse, holder, is_in_use, run_lock

FORK = multiprocessing.get_context("fork")


def hold(folder, locked):
    with run_lock(folder):
        locked.set()
        time.sleep(600)


@pytest.fixture
def other(tmp_path):
    """A process that holds the lock of ``tmp_path``."""
    locked = FORK.Event()
    process = FORK.Process(target=hold, args=(tmp_path, locked))
    process.start()
    assert locked.wait(30)
    yield process
    process.kill()
    process.join()


def test_another_process_is_named(tmp_path, other):
    name = rf"process {other.pid} on {re.escape(socket.gethostname())}, since 20\d\d-.*; wait for it"
    with pytest.raises(RunInUse, match=name), run_lock(tmp_path):
        pass
    assert is_in_use(tmp_path)
    assert str(other.pid) in holder(tmp_path)


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_a_death_frees_the_folder(tmp_path, other, signal_number):
    os.kill(other.pid, signal_number)
    other.join()
    assert (tmp_path / LOCK_FILE).exists()
    assert not is_in_use(tmp_path)
    with run_lock(tmp_path):
        assert holder(tmp_path) == "this process"
    assert not (tmp_path / LOCK_FILE).exists()


def test_a_process_may_lock_twice(tmp_path):
    with run_lock(tmp_path), run_lock(tmp_path):
        assert not is_in_use(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_refused_run_leaves_no_folder(tmp_path):
    with pytest.raises(ValueError), run_lock(tmp_path / "new"):
        raise ValueError
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["ENOLCK", "ENOSYS", "EOPNOTSUPP", "ENOTSUP", "EINVAL"])
def test_a_file_system_without_locks_is_reported_and_the_run_starts(tmp_path, monkeypatch, name):
    def lockf(*_):
        raise OSError(getattr(errno, name), name)

    monkeypatch.setattr(fcntl, "lockf", lockf)
    message = r"run\.lock' cannot be locked on its file system; start a run only once"
    with pytest.warns(UserWarning, match=message), run_lock(tmp_path):
        assert holder(tmp_path) == "this process"
    (tmp_path / LOCK_FILE).write_text("{}")
    with pytest.warns(UserWarning, match=message):
        assert not is_in_use(tmp_path)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EBADF])
def test_another_failure_of_a_lock_is_an_error(tmp_path, monkeypatch, number):
    def lockf(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "lockf", lockf)
    message = rf"run: expected to lock '.*run\.lock', got '{os.strerror(number)}'; check its file system"
    with pytest.raises(OSError, match=message), run_lock(tmp_path):
        pytest.fail("the run started")


def test_a_lock_file_that_cannot_be_read_is_of_another_process(tmp_path, other):
    (tmp_path / LOCK_FILE).write_text("not JSON")
    with pytest.raises(RunInUse, match="in use by another process; wait for it"), run_lock(tmp_path):
        pass


def count(folder, rounds):
    """Increment a number in a file; without exclusion, increments are lost."""
    done = 0
    while done < rounds:
        try:
            with run_lock(folder):
                path = folder / "number"
                number = int(path.read_text()) if path.exists() else 0
                time.sleep(0.001)
                path.write_text(str(number + 1))
            done += 1
        except RunInUse:
            time.sleep(0.001)


def test_only_one_at_a_time(tmp_path):
    processes = [FORK.Process(target=count, args=(tmp_path, 15)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert (tmp_path / "number").read_text() == "45"
