"""The command line: parse, call, print. Everything it does can be done from Python too.

Imports of torch and of what needs it stay inside the commands, so that help and reports come at once.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from . import __version__

app = typer.Typer(
    name="isice",
    help="Partial-correlation and other second-order representations: layers, models, training and evidence.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_out = Console()
# Errors of ours, worded for users; anything else is a defect and shows its traceback.
_USER_ERRORS = (ValueError, TypeError, OSError, FloatingPointError, ImportError)
_REQUIRED = ("torch", "torchvision", "timm", "numpy", "safetensors", "sklearn", "matplotlib", "jinja2", "rich", "typer")

Settings = Annotated[list[str] | None, typer.Option("--set", metavar="a.b=c", help="Override a setting; repeatable.")]


def main() -> None:
    """The entry point: an error is one line and status 2, Ctrl-C is status 130; ISICE_DEBUG=1 shows tracebacks."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except _USER_ERRORS as error:
        if os.environ.get("ISICE_DEBUG"):
            raise
        Console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"isice {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options before the command."""


@app.command("list")
def list_(
    backbones: Annotated[bool, typer.Option("--backbones", help="List the paper's backbones.")] = False,
    datasets: Annotated[bool, typer.Option("--datasets", help="List the datasets.")] = False,
    experiments: Annotated[bool, typer.Option("--experiments", help="List the experiments.")] = False,
) -> None:
    """List pooling layers (or backbones, datasets, experiments)."""
    asked = [
        table
        for wanted, table in (
            (backbones, _backbone_table),
            (datasets, _dataset_table),
            (experiments, _experiment_table),
        )
        if wanted
    ]
    for table in asked or [_pooling_table]:
        _out.print(table())


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
    from .experiments.loader import load_experiment
    from .experiments.runner import run_experiment

    chosen = load_experiment(experiment).with_settings(settings or (), _parse_seeds(seeds))
    folder = out or Path("runs") / chosen.name
    if dry_run:
        _out.print(_plan_table(chosen, folder, force=force))
        return
    from .train import train_run

    outcome = run_experiment(
        chosen,
        folder,
        lambda config, path, label: train_run(config, path, label=label, resume="never" if force else "auto"),
        force=force,
        tell=lambda line: _out.print(line, markup=False, highlight=False, soft_wrap=True),
    )
    _report(folder)
    if outcome.failed:
        raise typer.Exit(1)


@app.command()
def train(
    model: Annotated[str, typer.Option("--model", help="Backbone.")] = "small_cnn",
    pooling: Annotated[str, typer.Option("--pooling", help='Head, such as "isice(n_iter=5)".')] = "isice",
    data: Annotated[str, typer.Option("--data", help="Dataset.")] = "digits",
    recipe: Annotated[str, typer.Option("--recipe", help="Recipe of the package, or a TOML file.")] = "small",
    out: Annotated[Path | None, typer.Option("--out", help="Folder. [default: runs/train/POOLING-HASH]")] = None,
    settings: Settings = None,
) -> None:
    """Train one network and write its record and report."""
    from dataclasses import replace

    from ._specs import parse_spec
    from .config import config_hash, override
    from .experiments.loader import load_recipe
    from .train import train_run

    config = load_recipe(recipe)
    config = replace(
        config,
        model=replace(config.model, backbone=model, pooling=pooling),
        data=replace(config.data, name=data),
    )
    config = override(config, settings or ())
    name = f"{parse_spec(config.model.pooling)[0]}-{config_hash(config)}"
    folder = out or Path("runs") / "train" / name
    train_run(config, folder)
    _report(folder)


@app.command()
def report(folder: Annotated[Path, typer.Argument(help="A folder of runs, such as runs/demo.")]) -> None:
    """Print the table of a folder of runs and write report.md and report.html from its records."""
    _report(folder)


@app.command()
def explain(
    what: Annotated[
        list[str],
        typer.Argument(metavar="RUN... IMAGE...", help="Run folders, then image files or test:7 for a test image."),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for the page and its pictures.")] = Path("runs/explain"),
    target: Annotated[str | None, typer.Option("--class", help="Class to explain. [default: the predicted]")] = None,
    method: Annotated[str, typer.Option("--method", help="centered, hires_cam or grad_cam.")] = "centered",
    pairs: Annotated[int, typer.Option("--pairs", help="Channel pairs per graph.")] = 6,
    last: Annotated[bool, typer.Option("--last", help="The newest checkpoint instead of the best.")] = False,
) -> None:
    """Show what networks look at in images: heat maps, maps of a class, graphs of channels."""
    from .explain import explain_runs

    folders, images = [name for name in what if Path(name).is_dir()], [name for name in what if not Path(name).is_dir()]
    which = "last" if last else "best"
    written = explain_runs(folders, images, out, target=target, which=which, method=method, n_pairs=pairs)
    for path in written.values():
        _out.print(f"wrote {path}", markup=False, highlight=False, soft_wrap=True)


@app.command()
def doctor() -> None:
    """Show versions, device, threads and backends, and what is missing."""
    import torch

    from .train.record import commit, hardware, versions

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    facts = {**versions(), "commit": commit() or "not a checkout", **hardware(device)}
    facts["triton"] = _triton(device.type)
    facts["weights cache"] = os.environ.get("HF_HOME", "default of huggingface_hub")
    table = Table(show_header=False, box=None)
    for name, value in facts.items():
        table.add_row(name, str(value))
    _out.print(table)
    missing = [name for name in _REQUIRED if find_spec(name) is None]
    for name in missing:
        _out.print(f"missing: {name}; reinstall with pip install isice", style="yellow")
    if missing:
        raise typer.Exit(1)
    _out.print("Nothing is missing.", style="green")


def _triton(device: str) -> str:
    if find_spec("triton") is None:
        return "not installed: the torch backend is used"
    return "available" if device == "cuda" else "installed, but without a GPU the torch backend is used"


def _report(folder: Path) -> None:
    from .report import result_table, write_report
    from .report.page import failures
    from .report.tables import load_results

    results = load_results(folder)
    paths = write_report(folder)
    _out.print(result_table(results).to_rich())
    for label, message in failures(results):
        _out.print(f"{label} failed: {message}", style="red", markup=False, highlight=False, soft_wrap=True)
    for path in paths.values():
        _out.print(f"wrote {path}", markup=False, highlight=False, soft_wrap=True)


def _parse_seeds(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(seed) for seed in text.split(",")]
    except ValueError:
        raise ValueError(f"run: expected --seeds like 0,1,2, got {text!r}.") from None


def _plan_table(experiment: Any, folder: Path, *, force: bool) -> Table:
    from .config import config_hash
    from .experiments.records import is_finished, read_record

    table = _table("run", "hash", "epochs", "what happens", title=f"{experiment.title} → {folder}")
    for cell in experiment.cells():
        key = config_hash(cell.config)
        finished = not force and is_finished(read_record(folder / cell.name), key)
        table.add_row(cell.label, key, str(cell.config.optim.epochs), "skip: finished" if finished else "train")
    return table


def _pooling_table() -> Table:
    from .pooling import create_pooling, list_poolings, pooling_class

    table = _table("pooling", "out at 256", "fidelity", "reference, options and their defaults")
    table.columns[1].justify = "right"
    for name in list_poolings():
        cls = pooling_class(name)
        width = "classes" if cls.needs_num_classes else f"{create_pooling(name, 256).out_features:,}"
        options = ", ".join(f"{option}={default!r}" for option, default in cls.option_defaults().items())
        about = Text(cls.reference)
        table.add_row(name, width, cls.fidelity, about.append(f"\n{options}", style="cyan") if options else about)
    return table


def _table(*columns: str, title: str | None = None) -> Table:
    """A light table whose last column alone may wrap."""
    table = Table(box=SIMPLE_HEAD, header_style="bold", title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, no_wrap=index < len(columns) - 1, overflow="fold")
    return table


def _backbone_table() -> Table:
    from .models import PAPER_BACKBONES

    table = _table("backbone", "timm name", title="Any timm backbone with a spatial feature map works; the paper's:")
    for short, entry in PAPER_BACKBONES.items():
        table.add_row(short, str(entry))
    return table


def _dataset_table() -> Table:
    from .data import DATASETS

    table = _table("dataset", "classes", "train", "test", "size", "source")
    for name, info in DATASETS.items():
        size = f"{info.channels}×{info.image_size}×{info.image_size}"
        counts = (info.num_classes, info.train_size, info.test_size)
        table.add_row(name, *("any" if count is None else f"{count:,}" for count in counts), size, info.source)
    return table


def _experiment_table() -> Table:
    from .experiments.loader import list_experiments, load_experiment

    table = _table("experiment", "runs", "title")
    for name in list_experiments():
        experiment = load_experiment(name)
        table.add_row(name, str(len(experiment.cells())), experiment.title)
    return table
