"""``isice run`` and ``isice report``: grids of runs, and the tables and pages made from their records."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ._app import Settings, app, console, table, tell


@app.command()
def run(
    experiment: Annotated[str, typer.Argument(help="An experiment of the package, such as demo, or a TOML file.")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the runs. [default: runs/EXPERIMENT]")] = None,
    settings: Settings = None,
    seeds: Annotated[str | None, typer.Option("--seeds", help="Seeds instead of the file's, such as 0,1,2.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run, and stop.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Run finished configurations again.")] = False,
) -> None:
    """Run every configuration of an experiment that has no finished record yet, then write its report."""
    from ..experiments.loader import load_experiment
    from ..experiments.runner import run_experiment

    chosen = load_experiment(experiment).with_settings(settings or (), _parse_seeds(seeds))
    folder = out or Path("runs") / chosen.name
    if dry_run:
        console.print(_plan_table(chosen, folder, force=force))
        return
    from ..train import train_run

    outcome = run_experiment(
        chosen,
        folder,
        lambda config, path, label: train_run(config, path, label=label, resume="never" if force else "auto"),
        force=force,
        tell=tell,
    )
    show_report(folder)
    if outcome.failed:
        raise typer.Exit(1)


@app.command()
def report(folder: Annotated[Path, typer.Argument(help="A folder of runs, such as runs/demo.")]) -> None:
    """Print the table of a folder of runs and write report.md and report.html from its records."""
    show_report(folder)


def show_report(folder: Path) -> None:
    """Prints the table of a folder of runs and writes its report."""
    from ..report import result_table, write_report
    from ..report.page import failures
    from ..report.tables import load_results

    results = load_results(folder)
    paths = write_report(folder)
    console.print(result_table(results).to_rich())
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


def _plan_table(experiment: Any, folder: Path, *, force: bool) -> Table:
    from ..config import config_hash
    from ..experiments.records import is_finished, read_record

    made = table("run", "hash", "epochs", "what happens", title=f"{experiment.title} → {folder}")
    for cell in experiment.cells():
        key = config_hash(cell.config)
        finished = not force and is_finished(read_record(folder / cell.name), key)
        made.add_row(cell.label, key, str(cell.config.optim.epochs), "skip: finished" if finished else "train")
    return made
