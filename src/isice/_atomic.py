"""Writing without half-written files: a failed write keeps the old content.

Content is written to a temporary file beside its destination, synced to disk and renamed.
"""

import errno
import io
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a file in one step: readers see the old content or the new. Text becomes UTF-8."""
    # A random name and exclusive creation: an existing file or link is never opened for writing.
    partial = path.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        write_synced(partial, content.encode() if isinstance(content, str) else content)
        partial.replace(path)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error  # not the temporary name
        raise


def open_without_links(path: Path, mode: str, **options: Any) -> IO[Any]:
    """Open a file as :func:`open` does, but refuse a link at ``path`` (POSIX only)."""
    try:
        return open(path, mode, opener=lambda name, flags: os.open(name, flags | _NO_FOLLOW, 0o666), **options)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise OSError(errno.ELOOP, f"run: expected {str(path)!r} to be a file, got a link; remove it") from None


def write_arrays(path: Path, **arrays: Any) -> None:
    """Replace a ``.npz`` file by one with these arrays."""
    import numpy as np

    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_atomically(path, buffer.getvalue())


@contextmanager
def replace_files(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder; after the block its files replace those of ``folder``.

    Files of other names stay. If the block or a move fails, ``folder`` is restored. Files that
    cannot be moved back stay in the temporary folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".new-", suffix=".partial", dir=folder))
    try:
        new, old = temporary / "new", temporary / "old"
        new.mkdir()
        old.mkdir()
        yield new
        _exchange(sorted(new.iterdir()), folder, old)
    except BaseException:
        if not any((temporary / "old").glob("*")):
            shutil.rmtree(temporary, ignore_errors=True)
        raise
    shutil.rmtree(temporary, ignore_errors=True)


def _exchange(files: list[Path], folder: Path, old: Path) -> None:
    """Move ``files`` to ``folder`` and those they replace to ``old``; undo all on an error."""
    for file in files if os.name == "posix" else ():
        _sync(file)
    done: list[Path] = []
    try:
        for file in files:
            target = folder / file.name
            done.append(target)
            if target.exists():
                target.replace(old / target.name)
            file.replace(target)
    except BaseException:
        for target in done:
            if (old / target.name).exists():
                (old / target.name).replace(target)
            elif not (files[0].parent / target.name).exists():
                target.unlink(missing_ok=True)
        raise


def write_folder(place: Path, contents: Mapping[str, bytes]) -> None:
    """Replace a folder by one with these files, by two renames.

    Only one process may write a folder at a time. Between the renames the old folder has another
    name, which :func:`readable_folder` returns.
    """
    partial, previous = place.with_name(f"{place.name}.partial"), _previous(place)
    recover_folder(place)
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        for name, content in contents.items():
            write_synced(partial / name, content)
        sync_folder(partial)
        if place.exists():
            place.rename(previous)
        partial.rename(place)
        sync_folder(place.parent)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        recover_folder(place)
        raise
    shutil.rmtree(previous, ignore_errors=True)


def readable_folder(place: Path) -> Path:
    """Return ``place``, or the old folder if :func:`write_folder` stopped between its renames."""
    return place if place.exists() or not _previous(place).exists() else _previous(place)


def recover_folder(place: Path) -> None:
    """Complete or undo the renames of a killed :func:`write_folder`. Readers must not call it."""
    previous = _previous(place)
    if previous.exists():
        if place.exists():
            shutil.rmtree(previous, ignore_errors=True)
        else:
            previous.rename(place)


def write_synced(path: Path, content: bytes) -> None:
    """Write a new file and sync it to disk."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable. Windows cannot open folders and needs no sync."""
    if os.name == "posix":
        _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _previous(place: Path) -> Path:
    return place.with_name(f"{place.name}.previous")
