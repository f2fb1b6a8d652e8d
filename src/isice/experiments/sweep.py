"""Cells on several devices: one process per device at a time, one run per process.

A process of its own for every run means that a crash or an out-of-memory kill costs that run and no other. For a
cluster, start ``isice run … --shard i/n`` or ``--only-cell i`` with its own launcher instead.
"""

import contextlib
import multiprocessing
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from ..records import new_record, read_record, write_record
from .loader import Cell

Job = Callable[[Any, Path, str], Any]
LOG_FILE = "log.txt"
GRACE_SECONDS = 10


def run_on_devices(
    cells: Sequence[Cell], out: Path, job: Job, devices: Sequence[str], tell: Callable[[str], None]
) -> Iterator[tuple[Cell, str | None]]:
    """Runs the cells, each on the next free device; gives each with its error, or None, as soon as it has ended.

    Args:
        cells: What to run.
        out: Folder for the runs.
        job: A function that can be pickled; its output goes to ``log.txt`` in the run's folder.
        devices: Such as ``["cuda:0", "cuda:1"]``.
        tell: Gets a line when a run starts.
    """
    waiting: queue.SimpleQueue[Cell] = queue.SimpleQueue()
    ended: queue.SimpleQueue[tuple[Cell, str | None]] = queue.SimpleQueue()
    for cell in cells:
        waiting.put(cell)
    stop, started = threading.Event(), list[BaseProcess]()

    def serve(device: str) -> None:
        """Takes cells until there are none."""
        while not stop.is_set():
            try:
                cell = waiting.get_nowait()
            except queue.Empty:
                return
            tell(f"{cell.label}: started on {device}, output in {out / cell.name / LOG_FILE}")
            try:
                ended.put((cell, _run_process(cell, out / cell.name, job, device, started)))
            except Exception as error:
                ended.put((cell, f"{type(error).__name__}: {error}"))

    for device in devices:
        threading.Thread(target=serve, args=(device,), daemon=True).start()
    try:
        for _ in cells:
            yield ended.get()
    finally:
        stop.set()
        _end(started)


def _end(processes: list[BaseProcess]) -> None:
    """Ends runs that are still going after an interrupt; the terminal has told them too, so they get a moment."""
    for process in processes:
        if process.is_alive():
            process.join(GRACE_SECONDS)
            process.terminate()


def _run_process(cell: Cell, folder: Path, job: Job, device: str, started: list[BaseProcess]) -> str | None:
    folder.mkdir(parents=True, exist_ok=True)
    config = replace(cell.config, device=device) if hasattr(cell.config, "device") else cell.config
    # No daemon: a run may start processes of its own, to load images.
    process = multiprocessing.get_context("spawn").Process(target=_work, args=(job, config, folder, cell.label))
    process.start()
    started.append(process)
    process.join()
    if process.exitcode == 0:
        return None
    record = read_record(folder) or {}
    if process.exitcode == 1 and record.get("hash") == cell.hash and "error" in record:
        return str(record["error"])
    error = f"the process ended with status {process.exitcode}; see {LOG_FILE} in its folder"
    # A killed process could not write its own record.
    write_record(folder, new_record(cell.config, {}) | {"kind": cell.kind, "status": "failed", "error": error})
    return error


def _work(job: Job, config: Any, folder: Path, label: str) -> None:
    """The process: everything it prints goes to the log of the run."""
    with (
        (folder / LOG_FILE).open("a", encoding="utf-8", buffering=1) as log,  # by lines: a killed process keeps them
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        try:
            job(config, folder, label)
        except Exception as error:
            print(f"{type(error).__name__}: {error}", file=log)
            sys.exit(1)
