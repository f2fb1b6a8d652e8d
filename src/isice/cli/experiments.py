"""``isice run`` and ``isice report``: grids of runs, and the tables and pages made from their records."""

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from ._app import Settings, app, console, table, tell

if TYPE_CHECKING:
    from ..experiments.manifest import Manifest
    from ..experiments.plan import Step

RUNS = Path("runs")

Limit = Annotated[
    list[str] | None,
    typer.Option("--limit", metavar="AXIS=VALUE,…", help="Only these values of an axis; repeatable."),
]
Seeds = Annotated[str | None, typer.Option("--seeds", help="Seeds instead of the file's, such as 0,1,2.")]


@app.command()
def run(
    experiment: Annotated[str, typer.Argument(help="An experiment of the package, such as table3, or a TOML file.")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the runs. [default: runs/EXPERIMENT]")] = None,
    limit: Limit = None,
    settings: Settings = None,
    seeds: Seeds = None,
    devices: Annotated[str | None, typer.Option("--devices", help="One run at a time on each, such as 0,1,2.")] = None,
    shard: Annotated[str | None, typer.Option("--shard", metavar="I/N", help="Every N-th run, from the I-th.")] = None,
    only_cell: Annotated[int | None, typer.Option("--only-cell", metavar="I", help="The I-th run alone.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run and how long it may take.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Run finished configurations again.")] = False,
) -> None:
    """Run every configuration of an experiment that has no finished record yet, then write its report.

    Stopped at any moment, the same command goes on. Without --out, runs are shared by all experiments in runs/.

    Examples:

    - `isice run table3 --limit dataset=cub --seeds 0,1,2 --dry-run`

    - `isice run table3 --limit dataset=cub --set data.root=CUB_200_2011 --devices 0,1`

    - `isice run table3 --shard $SLURM_ARRAY_TASK_ID/8`: one task of an array of eight
    """
    from ..experiments.loader import load_experiment
    from ..experiments.plan import plan, read_limits, select_cells
    from ..experiments.records import find_records
    from ..experiments.runner import run_experiment

    chosen = load_experiment(experiment).with_settings(settings or (), _parse_seeds(seeds))
    folder, pool = out or RUNS / chosen.name, out or RUNS
    cells = select_cells(chosen, limit or (), shard=shard, only=only_cell)
    if dry_run:
        _show_plan(plan(cells, chosen.kind, find_records(pool), force=force), f"{chosen.title} → {folder}")
        return
    from ..jobs import run_job
    from ..train.launch import is_main_process

    outcome = run_experiment(
        chosen,
        folder,
        partial(run_job, kind=chosen.kind, force=force),
        cells=cells,
        pool=pool,
        devices=_parse_devices(devices),
        force=force,
        tell=tell,
    )
    if shard is None and only_cell is None and is_main_process():
        show_report(folder, limits=read_limits(chosen, limit or ()))
    elif is_main_process():
        tell(f"{len(outcome.done)} run, {len(outcome.skipped)} skipped; when all are done: isice report {folder}")
    if outcome.failed:
        raise typer.Exit(1)


@app.command()
def report(
    what: Annotated[str, typer.Argument(help="A folder of runs, a run, or an experiment such as table3.")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder of the runs. [default: runs/EXPERIMENT]")] = None,
    limit: Limit = None,
    settings: Settings = None,
) -> None:
    """Print the tables of a folder of runs, and write report.md, report.tex and report.html from its records.

    An experiment of the paper shows the paper's numbers, ours and the difference; — is where there is no record.

    Examples:

    - `isice report runs/demo`

    - `isice report table3 --limit dataset=cub`

    - `isice report table1 --set optim.epochs=24`: the runs that were made with this setting
    """
    from ..experiments.loader import list_experiments, load_experiment
    from ..experiments.manifest import describe
    from ..experiments.plan import read_limits

    if Path(what).is_dir() or (what not in list_experiments() and not what.endswith(".toml")):
        if limit or settings:
            raise ValueError(
                "report: expected --limit and --set with an experiment, got a folder; name the experiment."
            )
        show_report(Path(what))
        return
    chosen = load_experiment(what).with_settings(settings or ())
    manifest = describe(chosen, "." if out else "..")
    show_report(out or RUNS / chosen.name, manifest, read_limits(chosen, limit or ()))


def show_report(
    folder: Path, manifest: "Manifest | None" = None, limits: Mapping[str, Collection[str]] | None = None
) -> None:
    """Prints the tables of a folder of runs and writes its report."""
    from ..report import write_report
    from ..report.comparison import chunks
    from ..report.page import comparisons, failures, remarks, run_table
    from ..report.tables import load_results

    results = load_results(folder, manifest)
    paths = write_report(folder, manifest, limits)
    for comparison in comparisons(results, limits):
        tell(comparison.title, style="bold")
        for part in chunks(comparison, console.width):
            console.print(part.to_table().to_rich())
        for note in comparison.notes:
            tell(note)
    runs = run_table(results)
    if runs is not None:
        console.print(runs.to_rich())
    for remark in remarks(results):
        tell(remark)
    for label, message in failures(results):
        tell(f"{label} failed: {message}", style="red")
    for path in paths.values():
        tell(f"wrote {path}")


def _parse_seeds(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(seed) for seed in text.split(",")]
    except ValueError:
        raise ValueError(f"run: expected --seeds like 0,1,2, got {text!r}.") from None


def _parse_devices(text: str | None) -> list[str]:
    """``"0,1"`` → ``["cuda:0", "cuda:1"]``; other names stay."""
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    if text is not None and not words:
        raise ValueError(f"run: expected --devices like 0,1 or cpu, got {text!r}.")
    return [f"cuda:{word}" if word.isdigit() else word for word in words]


def _show_plan(steps: "list[Step]", title: str) -> None:
    from ..experiments.plan import duration, summary

    made: Table = table("no.", "run", "hash", "time", "what happens", title=title)
    for number, step in enumerate(steps):
        what = "run" if step.finished is None else f"skip: finished in {step.finished}"
        time = duration(step.seconds) if step.finished is None else ""
        made.add_row(str(number), step.cell.label, step.cell.hash, time, what)
    console.print(made)
    tell(summary(steps))
