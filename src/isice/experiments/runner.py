"""Runs the cells of an experiment: finished ones are skipped, failed ones do not stop the others."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..records import find_records, finished_folders
from .loader import Cell, Experiment
from .manifest import describe, write_manifest
from .sweep import run_on_devices

Job = Callable[[Any, Path, str], Any]
# Skipped runs that are named one by one; more are counted.
FEW = 10


@dataclass
class Outcome:
    """The names of the cells that were run, skipped and failed; failures with their message."""

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def run_experiment(
    experiment: Experiment,
    out: str | Path,
    job: Job,
    *,
    cells: Sequence[Cell] | None = None,
    pool: str | Path | None = None,
    devices: Sequence[str] = (),
    force: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Runs every cell that has no finished record yet.

    Args:
        experiment: What to run.
        out: Folder for the runs, one subfolder each.
        job: Computes one config into a folder under a label and leaves a record there, also of a failure.
        cells: The cells to run; all of the experiment by default.
        pool: Folder in which finished runs are looked for; ``out`` by default. A common one shares runs.
        devices: One process on each of these devices ("cuda:0", "cpu"); by default this process runs all cells.
        force: Run finished cells again.
        tell: Gets lines of text about cells that are skipped or failed.
    """
    out = Path(out)
    write_manifest(describe(experiment, os.path.relpath(pool or out, out)), out)
    finished = {} if force else finished_folders(find_records(pool or out))
    outcome, waiting, skipped = Outcome(), list[Cell](), list[Cell]()
    for cell in experiment.cells() if cells is None else cells:
        if cell.hash in finished:
            skipped.append(cell)
        else:
            waiting.append(cell)
    outcome.skipped.extend(cell.name for cell in skipped)
    if len(skipped) > FEW:
        tell(f"{len(skipped)} runs finished before, skipped")
    for cell in skipped if len(skipped) <= FEW else ():
        where = "" if finished[cell.hash] == out / cell.name else f" in {finished[cell.hash]}"
        tell(f"{cell.label}: finished before{where}, skipped")
    results = run_on_devices(waiting, out, job, devices, tell) if devices else _run_here(waiting, out, job)
    for cell, error in results:
        if error is None:
            outcome.done.append(cell.name)
        else:
            outcome.failed[cell.name] = error
            tell(f"{cell.label}: failed: {error}")
    return outcome


def _run_here(cells: Sequence[Cell], out: Path, job: Job) -> Any:
    for cell in cells:
        try:
            job(cell.config, out / cell.name, cell.label)
        except Exception as error:
            yield cell, f"{type(error).__name__}: {error}"
        else:
            yield cell, None
