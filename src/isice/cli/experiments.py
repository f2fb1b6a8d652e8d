"""``isice run``: run an experiment."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ..config import RunConfig
from ..experiments.jobs import run_job
from ..experiments.loader import Cell, load_experiment
from ..experiments.plan import Step, format_duration, plan, read_limits, select_cells, summary
from ..experiments.runner import run_experiment
from ..records import find_records
from ._app import Settings, WeightsRoot, app, console, table, tell
from ._data_roots import check_data, dataset_key, missing_data, with_roots
from ._show import RUNS, Limit, draw_heat_maps, show_report

Seeds = Annotated[str | None, typer.Option("--seeds", help="Seeds, such as 0,1,2. [default: those of the file]")]


@app.command()
def run(
    experiment: Annotated[str, typer.Argument(help="An experiment of the package, such as table3, or a TOML file.")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the runs. [default: runs/EXPERIMENT]")] = None,
    limit: Limit = None,
    settings: Settings = None,
    seeds: Seeds = None,
    data_root: Annotated[
        Path | None, typer.Option("--data-root", envvar="ISICE_DATA", help="Folder with one sub-folder per dataset.")
    ] = None,
    weights_root: WeightsRoot = None,
    everything: Annotated[bool, typer.Option("--all", help="Also run cells without a published number.")] = False,
    devices: Annotated[
        str | None, typer.Option("--devices", help="Devices to run on in parallel, such as 0,1,2.")
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option("--shard", metavar="I/N", help="Run every N-th cell, starting with the I-th, counted from 0."),
    ] = None,
    only_cell: Annotated[
        int | None, typer.Option("--only-cell", metavar="I", help="Run only the I-th cell, counted from 0.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs and their estimated time.")] = False,
    estimate: Annotated[
        bool,
        typer.Option("--estimate", help="Measure a few steps of every network here, then list runs, memory and time."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Run finished configurations again.")] = False,
    images: Annotated[
        int | None,
        typer.Option("--images", min=0, help="Test images to draw heat maps of. [default: images in the file]"),
    ] = None,
) -> None:
    """Run the configurations of an experiment that have no finished record, and write its report.

    Rerun the same command to resume. Without --out, experiments share the finished runs in runs/.

    Examples:

    - `isice run table3 --limit dataset=cub --seeds 0,1,2 --dry-run`

    - `isice run table3 --limit dataset=cub --set data.root=CUB_200_2011 --devices 0,1`

    - `isice run table3 --data-root data`: data/cub200, data/cars and so on; data.root in the
      settings takes precedence

    - `isice run table3 --shard $SLURM_ARRAY_TASK_ID/8`: one task of a job array of eight
    """
    from ..train.backbone_input import follow_backbone_input
    from ..train.launch import is_main_process

    chosen = load_experiment(experiment).with_settings(settings or (), _parse_seeds(seeds))
    chosen = replace(chosen, adapt=follow_backbone_input)
    folder, runs_root = out or RUNS / chosen.name, out or RUNS
    chosen = chosen.with_weights_from(weights_root, select_cells(chosen, limit or (), published=not everything))
    selected = select_cells(chosen, limit or (), shard=shard, only=only_cell, published=not everything)
    cells = with_roots(selected, data_root)
    steps = plan(cells, find_records(runs_root), force=force)
    sharded = shard is not None or only_cell is not None
    if dry_run or estimate:
        _show_plan(_measured(steps) if estimate else steps, f"{chosen.title} → {folder}")
    left = 0 if everything or sharded else len(select_cells(chosen, limit or ())) - len(selected)
    if left and is_main_process():
        tell(f"{left} more {'runs have' if left > 1 else 'run has'} no published number; --all adds them.")
    if dry_run or estimate:
        return
    if chosen.kind in ("dataset", "samples"):
        cells = _without_missing_data(cells)
    else:
        check_data(step.cell for step in steps if step.finished is None)
    try:
        outcome = run_experiment(
            chosen,
            folder,
            partial(run_job, force=force),
            cells=cells,
            runs_root=runs_root,
            devices=_parse_devices(devices),
            force=force,
            share=_single_process(cells),
            limits=read_limits(chosen, limit or ()),
            tell=tell,
        )
    except KeyboardInterrupt:
        if is_main_process():
            tell("interrupted; rerun the same command to resume, finished runs are kept")
        raise
    if not sharded and is_main_process():
        if images is not None or outcome.done:
            draw_heat_maps(folder, None, chosen.images if images is None else images)
        show_report(folder)
    elif is_main_process():
        tell(f"{len(outcome.done)} run, {len(outcome.skipped)} skipped; after the last shard: isice report {folder}")
    if outcome.failed:
        raise typer.Exit(1)


def _without_missing_data(cells: list[Cell]) -> list[Cell]:
    """Leave out datasets that are not there: a table or figure of datasets shows the others."""
    missing = missing_data(cells)
    for (name, _), reason in missing.items():
        tell(f"{name} is left out: {reason}")
    return [cell for cell in cells if dataset_key(cell) not in missing]


def _single_process(cells: Sequence[Cell]) -> bool:
    """Return whether one process computes a run, so that it may decide alone which run is next."""
    from ..train.launch import launched

    several = any(getattr(c.config, "devices", 1) * getattr(c.config, "nodes", 1) > 1 for c in cells)
    return not several and launched(os.environ) is None


def _parse_seeds(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(seed) for seed in text.split(",")]
    except ValueError:
        raise ValueError(f"run: expected --seeds like 0,1,2, got {text!r}.") from None


def _parse_devices(text: str | None) -> list[str]:
    """Parse ``"0,1"`` to ``["cuda:0", "cuda:1"]``; other names of devices are kept."""
    from ..train.launch import resolve_device

    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    if text is not None and not words:
        raise ValueError(f"run: expected --devices like 0,1 or cpu, got {text!r}.")
    names = [f"cuda:{word}" if word.isdigit() else word for word in words]
    for name in names:
        resolve_device(name)
    return names


def _measured(steps: list[Step]) -> list[Step]:
    """Replace estimated times of unfinished training runs by measured ones."""
    from ..experiments.jobs._estimate import estimate_costs

    waiting = [step for step in steps if step.finished is None and isinstance(step.cell.config, RunConfig)]
    costs = estimate_costs([step.cell.config for step in waiting], tell)
    found = {step.cell.name: cost for step, cost in zip(waiting, costs, strict=True)}
    return [
        replace(step, seconds=cost.seconds, images=cost.images, gib=cost.gib)
        if (cost := found.get(step.cell.name))
        else step
        for step in steps
    ]


def _show_plan(steps: list[Step], title: str) -> None:
    missing = missing_data(step.cell for step in steps if step.finished is None)
    lacking = dict.fromkeys(missing, 0)
    measured = any(step.images is not None for step in steps)
    made = table("no.", "run", "hash", *(("images", "memory") if measured else ()), "time", "action", title=title)
    for number, step in enumerate(steps):
        what, time = f"skip: finished in {step.finished}", ""
        if step.finished is None:
            place = dataset_key(step.cell)
            what, time = "no data" if place in missing else "run", format_duration(step.seconds)
            if place in missing:
                lacking[place] += 1
        size = "" if step.images is None else f"{step.images:,}", "—" if step.gib is None else f"{step.gib:.1f} GiB"
        made.add_row(str(number), step.cell.label, step.cell.hash, *(size if measured else ()), time, what)
    made.columns[1].no_wrap = False  # at 80 columns the names wrap, not the numbers and hashes
    made.columns[-1].min_width = 7
    console.print(made)
    tell(summary(steps))
    if measured:
        tell("Times are those of training steps and evaluations on this machine, without loading images.")
        if any(step.cell.kind == "frozen" for step in steps):
            tell("For frozen networks the time is one pass over the images; fitting the classifier is not included.")
    for (name, root), count in lacking.items():
        tell(f"No data for {count} runs on {name}: {missing[name, root]}.")
    if lacking:
        tell("Give --data-root DIR with one sub-folder per dataset, or --set data.root=FOLDER for a single one.")
