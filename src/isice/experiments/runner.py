"""Run the cells of an experiment: skip finished ones, continue after failures."""

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..records import find_records
from ..run_lock import RunInUse, holder, is_in_use, run_lock
from .job_configs import finished_folders
from .loader import Cell, Experiment
from .manifest import describe, read_manifest, united_limits, write_manifest
from .sweep import FINISHED, IN_USE, Compute, is_finished, run_on_devices

# More skipped runs than this are counted instead of listed.
MAX_LISTED = 10
WAIT_SECONDS = 2.0  # between looks at the runs of other processes


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
    runs_root: str | Path | None = None,
    devices: Sequence[str] = (),
    force: bool = False,
    share: bool = True,
    limits: Mapping[str, Collection[str]] | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Run every cell that has no finished record yet.

    Args:
        experiment: The experiment.
        out: Folder for the runs, one sub-folder each.
        compute: Computes a config into a folder under a label; writes its record, even on failure.
        cells: The cells to run; all of the experiment by default.
        runs_root: Folder in which finished runs are searched: ``out``, the default, or the folder
            that holds it, to share runs between experiments.
        devices: Devices ("cuda:0", "cpu") with one process each; by default, this process runs all.
        force: Run finished cells again.
        share: Let other processes run cells of the same folder: a cell that one of them works on is
            left to it, and taken over if that process ends without finishing it. False raises
            :class:`isice.run_lock.RunInUse`, for runs that several processes compute together.
        limits: Values of axes that the cells and the reports of the folder are limited to.
        tell: Called with a line of text for skipped and failed cells.
    """
    out, before = Path(out), None
    with suppress(ValueError):  # a damaged one is replaced
        before = read_manifest(out)
    united = united_limits(before, experiment.name, limits or {})
    write_manifest(describe(experiment, os.path.relpath(runs_root or out, out), united), out)
    finished = {} if force else finished_folders(find_records(runs_root or out))
    cells = experiment.cells() if cells is None else cells
    done = [(cell, where) for cell in cells if (where := cell.find_finished(finished)) is not None]
    _tell_skipped(done, out, tell)
    outcome = Outcome(skipped=[cell.name for cell, _ in done])
    waiting = [cell for cell in cells if cell.name not in outcome.skipped]
    while waiting:
        computed = (
            run_on_devices(waiting, out, compute, devices, tell, force=force)
            if devices
            else ((cell, _run_in_process(cell, out, compute, force)) for cell in waiting)
        )
        in_use = []
        for cell, error in computed:
            if error is None:
                outcome.done.append(cell.name)
            elif error == FINISHED:
                outcome.skipped.append(cell.name)
            elif error == IN_USE:
                in_use.append(cell)
            else:
                outcome.failed[cell.name] = error
                tell(f"{cell.label}: failed: {error}")
        if in_use and not share:
            raise RunInUse(f"run: expected {in_use[0].label} to be free, got {holder(out / in_use[0].name)}.")
        waiting = _wait(in_use, out, outcome, tell)
    return outcome


def _tell_skipped(done: list[tuple[Cell, Path]], out: Path, tell: Callable[[str], None]) -> None:
    if len(done) > MAX_LISTED:
        tell(f"{len(done)} finished runs skipped")
        return
    for cell, where in done:
        tell(f"{cell.label}: skipped, finished" + ("" if where == out / cell.name else f" in {where}"))


def _wait(cells: list[Cell], out: Path, outcome: Outcome, tell: Callable[[str], None]) -> list[Cell]:
    """Wait until another process leaves a cell unfinished; return the cells that are left."""
    for cell in cells:
        tell(f"{cell.label}: left to {holder(out / cell.name)}")
    while cells:
        free = [cell for cell in cells if not is_in_use(out / cell.name)]
        finished = [cell for cell in free if is_finished(cell, out)]
        outcome.skipped += [cell.name for cell in finished]
        cells = [cell for cell in cells if cell not in finished]
        if len(free) > len(finished):
            break
        time.sleep(WAIT_SECONDS if cells else 0)
    return cells


def _run_in_process(cell: Cell, out: Path, compute: Compute, force: bool) -> str | None:
    try:
        with run_lock(out / cell.name):
            # Read under the lock: another process may have finished the cell while this one waited.
            if not force and is_finished(cell, out):
                return FINISHED
            compute(cell.config, out / cell.name, cell.label)
    except RunInUse:
        return IN_USE
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None
