"""``isice bench``: time and memory of training steps and of pooling layers on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from .._checks import check_choice
from ..experiments.jobs import run_job
from ..experiments.loader import Experiment, load_experiment
from ..experiments.plan import read_limits, select_cells, unknown_axis
from ..experiments.runner import run_experiment
from ._app import Device, app, deprecated, tell
from ._show import Limit, show_report


@app.command()
def bench(
    what: Annotated[str, typer.Option("--what", metavar="all|steps|layers", help="What to measure.")] = "all",
    limit: Limit = None,
    backbone: Annotated[str, typer.Option("--model", help="Backbone of the training steps.")] = "resnet50",
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", help="Images per step. [default: 64; 4 on a CPU]")
    ] = None,
    batch: Annotated[int | None, typer.Option("--batch", hidden=True)] = None,
    image_size: Annotated[int, typer.Option("--image-size", help="Image size of the steps.")] = 224,
    precision: Annotated[
        str, typer.Option("--precision", metavar="fp32|tf32|bf16", help="Precision of the steps.")
    ] = "fp32",
    repeats: Annotated[int, typer.Option("--repeats", help="Measurements to take the median of.")] = 5,
    device: Device = "auto",
    out: Annotated[Path, typer.Option("--out", help="Folder for the records and reports.")] = Path("runs/bench"),
) -> None:
    """Measure training steps (Table 5 of the paper), and layers over channels and batch size.

    Compare the ratios to average pooling with those of the paper, not the seconds. On a CPU, layers
    are measured at 64 and 128 channels and batch size 8; --limit selects other values.

    Examples:

    - `isice bench`

    - `isice bench --what layers --limit channels=256 --limit method=isice,gap`
    """
    from ..train.launch import resolve_device

    if batch is not None:
        deprecated("--batch", "--batch-size")
        batch_size = batch if batch_size is None else batch_size
    check_choice("bench", "--what", what, ("all", "steps", "layers"))
    on_cpu = resolve_device(device).type == "cpu"
    steps = [f"backbone={backbone}", f"image_size={image_size}", f"precision={precision}"]
    steps.append(f"batch_size={(4 if on_cpu else 64) if batch_size is None else batch_size}")
    common = [f"repeats={repeats}", f"device={device}"]
    chosen = {"steps": ("table5", [*steps, *common]), "layers": ("layer", common)}
    parts = {
        part: load_experiment(name).with_settings(settings)
        for part, (name, settings) in chosen.items()
        if what in ("all", part)
    }
    limits = _limits(limit or [], list(parts.values()))
    failed = False
    for part, experiment in parts.items():
        small = ["channels=64,128", "batch=8"] if on_cpu and not limit and part == "layers" else []
        own = limits[experiment.name] or small
        cells = select_cells(experiment, own)
        outcome = run_experiment(experiment, out / part, run_job, cells=cells, force=True, tell=tell)
        failed |= bool(outcome.failed)
        show_report(out / part, limits=read_limits(experiment, own))
    if failed:
        raise typer.Exit(1)


def _limits(limits: list[str], experiments: list[Experiment]) -> dict[str, list[str]]:
    """Return the limits of each experiment; a limit without a matching axis is an error."""
    axes = {experiment.name: {axis.name for axis in experiment.axes} for experiment in experiments}
    for limit in limits:
        if not any(_axis(limit) in names for names in axes.values()):
            raise unknown_axis(limit, {axis.name: axis for e in experiments for axis in e.axes}.values())
    return {name: [limit for limit in limits if _axis(limit) in names] for name, names in axes.items()}


def _axis(limit: str) -> str:
    return limit.partition("=")[0].strip()
