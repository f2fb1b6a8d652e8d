"""The lock of a run folder, which names its holder and ends with the process that holds it.

It is a POSIX record lock (``fcntl``) on ``run.lock``. The operating system releases it when its
process ends, however it ends. It holds between all processes on a machine, and between machines if
their shared file system supports such locks, as NFS does with a lock service. After the crash of a
machine, the server releases its locks with a delay of its own. Where locks are not supported, a
warning says so, and on Windows there are none.
"""

import datetime
import errno
import json
import os
import socket
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ._atomic import open_without_links

LOCK_FILE = "run.lock"
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_ATTEMPTS = 4  # another process may hold the lock for a moment, to look whether it is free
# Folders locked by this process: a process has one lock per file, however often it asks.
_held: dict[Path, int] = {}


class RunInUse(OSError):
    """Another process works on the run folder."""


@contextmanager
def run_lock(folder: str | Path) -> Iterator[None]:
    """Hold the lock of a run folder; raise :class:`RunInUse` if another process holds it.

    The same process may lock a folder it has locked. A folder that is empty at the end, because the
    run was refused, is removed with the parents that were created for it.
    """
    folder = Path(folder).resolve()
    if _held.get(folder) == os.getpid():
        yield
        return
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    file = _acquire(folder)
    _held[folder] = os.getpid()
    try:
        yield
    finally:
        del _held[folder]
        # Removed while locked: a process that waits for the file notices and opens a new one.
        (folder / LOCK_FILE).unlink(missing_ok=True)
        file.close()
        with suppress(OSError):  # it has files
            for path in created:
                path.rmdir()


def is_in_use(folder: str | Path) -> bool:
    """Return whether another process holds the lock of a run folder."""
    folder = Path(folder).resolve()
    if _held.get(folder) == os.getpid():
        return False
    try:
        with open_without_links(folder / LOCK_FILE, "rb") as file:
            return not _try_lock(file, shared=True)
    except FileNotFoundError:
        return False


def holder(folder: str | Path) -> str:
    """Return who holds the lock of a folder, in words."""
    if _held.get(Path(folder).resolve()) == os.getpid():
        return "this process"  # to close the file would release the lock
    try:
        found = json.loads((Path(folder) / LOCK_FILE).read_text(encoding="utf-8"))
        return f"process {found['process']} on {found['host']}, since {found['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _acquire(folder: Path) -> IO[bytes]:
    for attempt in range(_ATTEMPTS):
        file = open_without_links(folder / LOCK_FILE, "a+b")
        locked = _try_lock(file)
        if locked and _is_current(file, folder):
            since = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            file.truncate(0)
            file.write(json.dumps({"host": socket.gethostname(), "process": os.getpid(), "since": since}).encode())
            file.flush()
            return file
        file.close()
        time.sleep(0.0 if locked else 0.05 * attempt)
    raise RunInUse(
        errno.EAGAIN,
        f"run: expected {str(folder)!r} to be free, got a folder in use by {holder(folder)}; "
        "wait for it, or use another folder",
    )


def _try_lock(file: IO[bytes], *, shared: bool = False) -> bool:
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.lockf(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        if error.errno not in _UNSUPPORTED:
            message = f"run: expected to lock {file.name!r}, got {error.strerror!r}; check its file system"
            raise OSError(error.errno, message) from None
        warnings.warn(f"run: {file.name!r} cannot be locked on its file system; start a run only once.", stacklevel=4)
    return True


def _is_current(file: IO[bytes], folder: Path) -> bool:
    """Return whether the locked file is still the one in the folder."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(folder / LOCK_FILE))
    except FileNotFoundError:
        return False
