"""Failing disks: an error at the n-th file operation below a folder, or a disk that is full."""

import errno
import os
import resource
import sys
from contextlib import contextmanager
from pathlib import Path

FAULTS = ("error", "full")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class _Plan:
    """What the audit hook does; a hook cannot be removed."""

    folder: str | None = None
    left = 0
    fault = "error"


def _hook(event, arguments):
    if _Plan.folder is None or event not in ("open", "os.rename", "os.mkdir"):
        return
    path = arguments[0]
    if isinstance(path, int) or not os.path.abspath(os.fsdecode(path)).startswith(_Plan.folder):
        return
    if event == "open" and not arguments[2] & _WRITES:
        return
    _Plan.left -= 1
    if _Plan.left == 0:
        if _Plan.fault == "error":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        # Every later write to a file then fails; renaming and removing still
        # work, as on a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@contextmanager
def inject(folder: Path, number: int, fault: str):
    """Make the ``number``-th operation that opens for writing, renames or makes a folder fail.

    Yields a function that tells whether there were as many operations.
    """
    if not getattr(_Plan, "installed", False):
        sys.addaudithook(_hook)
        _Plan.installed = True
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    _Plan.left, _Plan.fault, _Plan.folder = number, fault, str(folder.resolve())
    try:
        yield lambda: _Plan.left <= 0
    finally:
        _Plan.folder = None
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
