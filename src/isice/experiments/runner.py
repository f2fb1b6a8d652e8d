"""Run the cells of an experiment: skip finished ones, continue after failures."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..records import find_records, finished_folders
from .loader import Cell, Experiment
from .manifest import describe, write_manifest
from .sweep import Compute, run_on_devices

# More skipped runs than this are counted instead of listed.
MAX_LISTED = 10


@dataclass
class Outcome:
    """Names of the cells that were computed, skipped and failed, the latter with their error."""

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def run_experiment(
    experiment: Experiment,
    out: str | Path,
    compute: Compute,
    *,
    cells: Sequence[Cell] | None = None,
    pool: str | Path | None = None,
    devices: Sequence[str] = (),
    force: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Run every cell that has no finished record yet.

    Args:
        experiment: The experiment.
        out: Folder for the runs, one sub-folder each.
        compute: Computes a config into a folder under a label, and writes its record, also if it
            fails.
        cells: The cells to run; all of the experiment by default.
        pool: Folder in which finished runs are searched; ``out`` by default. A common pool shares
            runs.
        devices: Devices ("cuda:0", "cpu") with one process each; by default, this process runs all
            cells.
        force: Run finished cells again.
        tell: Called with a line of text for skipped and failed cells.
    """
    out = Path(out)
    write_manifest(describe(experiment, os.path.relpath(pool or out, out)), out)
    finished = {} if force else finished_folders(find_records(pool or out))
    cells = experiment.cells() if cells is None else cells
    waiting = [cell for cell in cells if cell.hash not in finished]
    skipped = [cell for cell in cells if cell.hash in finished]
    outcome = Outcome(skipped=[cell.name for cell in skipped])
    if len(skipped) > MAX_LISTED:
        tell(f"{len(skipped)} finished runs skipped")
    for cell in skipped if len(skipped) <= MAX_LISTED else ():
        where = "" if finished[cell.hash] == out / cell.name else f" in {finished[cell.hash]}"
        tell(f"{cell.label}: skipped, finished{where}")
    results = (
        run_on_devices(waiting, out, compute, devices, tell) if devices else _run_in_process(waiting, out, compute)
    )
    for cell, error in results:
        if error is None:
            outcome.done.append(cell.name)
        else:
            outcome.failed[cell.name] = error
            tell(f"{cell.label}: failed: {error}")
    return outcome


def _run_in_process(cells: Sequence[Cell], out: Path, compute: Compute) -> Iterator[tuple[Cell, str | None]]:
    for cell in cells:
        try:
            compute(cell.config, out / cell.name, cell.label)
        except Exception as error:
            yield cell, f"{type(error).__name__}: {error}"
        else:
            yield cell, None
