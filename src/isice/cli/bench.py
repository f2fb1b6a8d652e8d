"""``isice bench``: time and memory of training steps and of layers, on the hardware at hand."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ._app import app, tell
from .experiments import Limit, show_report

Parts = Annotated[str, typer.Option("--what", metavar="all|steps|layers", help="What is measured.")]


@app.command()
def bench(
    what: Parts = "all",
    limit: Limit = None,
    backbone: Annotated[str, typer.Option("--model", help="Backbone of the training steps.")] = "resnet50",
    batch: Annotated[int | None, typer.Option("--batch", help="Images of a step. [default: 64, on a CPU 4]")] = None,
    image_size: Annotated[int, typer.Option("--image-size", help="Side of an image of a step.")] = 224,
    precision: Annotated[str, typer.Option("--precision", metavar="fp32|tf32|bf16", help="Of the steps.")] = "fp32",
    repeats: Annotated[int, typer.Option("--repeats", help="Measurements, of which the median is taken.")] = 5,
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda:0.")] = "auto",
    out: Annotated[Path, typer.Option("--out", help="Folder for the records and reports.")] = Path("runs/bench"),
) -> None:
    """Measure heads in one process: a training step (Table 5 of the paper) and the layers alone over size and batch.

    Ratios to average pooling can be compared with the paper's, seconds cannot. On a CPU the layers are measured up to
    128 channels and batch 8, unless --limit says otherwise.

    Examples:

    - `isice bench`

    - `isice bench --what layers --limit channels=256 --limit method=isice,gap`
    """
    from .._checks import check_choice
    from ..experiments.loader import load_experiment
    from ..experiments.plan import read_limits, select_cells
    from ..experiments.runner import run_experiment
    from ..jobs import run_job
    from ..train.launch import resolve_device

    check_choice("bench", "--what", what, ("all", "steps", "layers"))
    on_cpu = resolve_device(device).type == "cpu"
    steps = [f"backbone={backbone}", f"image_size={image_size}", f"precision={precision}"]
    steps.append(f"batch_size={batch or (4 if on_cpu else 64)}")
    common = [f"repeats={repeats}", f"device={device}"]
    failed = False
    for part, name, settings in (("steps", "table5", steps), ("layers", "layer", [])):
        if what in ("all", part):
            experiment = load_experiment(name).with_settings([*settings, *common])
            small = ["channels=64,128", "batch=8"] if on_cpu and not limit and part == "layers" else []
            own = [one for one in limit or small if one.split("=")[0].strip() in {a.name for a in experiment.axes}]
            outcome = run_experiment(
                replace(experiment, description=f"{experiment.description} Measured by isice bench."),
                out / part,
                partial(run_job, kind="bench"),
                cells=select_cells(experiment, own),
                force=True,
                tell=tell,
            )
            failed |= bool(outcome.failed)
            show_report(out / part, limits=read_limits(experiment, own))
    if failed:
        raise typer.Exit(1)
