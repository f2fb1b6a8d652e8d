"""Cells on several devices: one process per run, one run at a time per device.

A crash or an out-of-memory kill then stops only its own run. On a cluster, let its launcher start
``isice run … --shard i/n`` or ``--only-cell i`` instead.
"""

import contextlib
import multiprocessing
import os
import queue
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from .._atomic import open_without_links
from .._parent import end_with_parent
from ..records import new_record, read_record, write_record
from ..run_lock import RunInUse, is_in_use, run_lock
from .loader import Cell

# Computes a config into a folder, under a label, and writes its record.
Compute = Callable[[Any, Path, str], Any]
LOG_FILE = "log.txt"
# Yielded instead of an error if another process works on the cell, or has finished it.
IN_USE, FINISHED = "another process works on it", "another process has finished it"
_IN_USE_STATUS = 75  # EX_TEMPFAIL
GRACE_SECONDS = 10  # for runs to end by themselves after an interrupt


def run_on_devices(
    cells: Sequence[Cell],
    out: Path,
    compute: Compute,
    devices: Sequence[str],
    tell: Callable[[str], None],
    *,
    force: bool = False,
) -> Iterator[tuple[Cell, str | None]]:
    """Run each cell on the next free device; yield it with its error, or None, as soon as it ends.

    ``compute`` can be pickled; its output goes to ``log.txt`` in the run's folder. ``force`` runs
    cells that another process has finished meanwhile.
    """
    free: queue.SimpleQueue[str] = queue.SimpleQueue()
    for device in devices:
        free.put(device)
    started: list[BaseProcess] = []

    def run(cell: Cell) -> tuple[Cell, str | None]:
        device = free.get()
        tell(f"{cell.label}: started on {device}, output in {out / cell.name / LOG_FILE}")
        try:
            return cell, _run_process(cell, out / cell.name, compute, device, started, force)
        except Exception as error:
            return cell, f"{type(error).__name__}: {error}"
        finally:
            free.put(device)

    pool = ThreadPoolExecutor(len(devices))
    try:
        for future in as_completed([pool.submit(run, cell) for cell in cells]):
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        _end(started)


def _end(processes: list[BaseProcess]) -> None:
    """Terminate runs that are still active; after Ctrl-C the terminal has interrupted them too."""
    for process in processes:
        if process.is_alive():
            process.join(GRACE_SECONDS)
            process.terminate()


def _run_process(
    cell: Cell, folder: Path, compute: Compute, device: str, started: list[BaseProcess], force: bool
) -> str | None:
    folder.mkdir(parents=True, exist_ok=True)
    config = replace(cell.config, device=device) if hasattr(cell.config, "device") else cell.config
    if not force and is_finished(cell, folder.parent):
        return FINISHED
    if is_in_use(folder):
        return IN_USE
    # Not a daemon: daemonic processes cannot start data loader workers.
    process = multiprocessing.get_context("spawn").Process(
        target=_work, args=(compute, config, folder, cell.label, os.getpid())
    )
    process.start()
    started.append(process)
    process.join()
    if process.exitcode == 0:
        return None
    if process.exitcode == _IN_USE_STATUS:
        return IN_USE
    record = read_record(folder) or {}
    if process.exitcode == 1 and record.get("hash") == cell.hash and "error" in record:
        return str(record["error"])
    error = f"the process ended with status {process.exitcode}; see {LOG_FILE} in its folder"
    # A killed process could not write its own record.
    with contextlib.suppress(RunInUse), run_lock(folder):
        write_record(folder, new_record(cell.config, {}) | {"kind": cell.kind, "status": "failed", "error": error})
    return error


def is_finished(cell: Cell, out: Path) -> bool:
    """Return whether the folder of a cell holds its finished record."""
    record = read_record(out / cell.name)
    return record is not None and record["status"] == "finished" and record["hash"] == cell.hash


def _work(compute: Compute, config: Any, folder: Path, label: str, parent: int) -> None:
    """Compute a run in this process, with its output in the log file."""
    end_with_parent(parent)
    with (
        open_without_links(folder / LOG_FILE, "a", encoding="utf-8", buffering=1) as log,  # by line, to survive a kill
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        try:
            with run_lock(folder):
                compute(config, folder, label)
        except RunInUse:
            sys.exit(_IN_USE_STATUS)
        except Exception as error:
            print(f"{type(error).__name__}: {error}", file=log)
            sys.exit(1)
