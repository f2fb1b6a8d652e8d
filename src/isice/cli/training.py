"""``isice train``: train one run."""

from pathlib import Path
from typing import Annotated

import typer

from .._specs import spec_name
from ..config import RunConfig, config_hash, load_config
from ..experiments.loader import load_recipe, override_recipe
from ..experiments.weight_files import find_all, with_weights
from ._app import Settings, WeightsRoot, app, tell
from ._show import lacks_heat_maps, show_report


@app.command()
def train(
    model: Annotated[str | None, typer.Option("--model", help="Backbone. [default: the recipe's]")] = None,
    pooling: Annotated[
        str | None, typer.Option("--pooling", help='Pooling, such as "isice(n_iter=5)". [default: the recipe\'s]')
    ] = None,
    data: Annotated[str | None, typer.Option("--data", help="Dataset. [default: the recipe's]")] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            metavar="NAME|FILE",
            help="Built-in recipe or TOML file. [default: finetune with --model, else small]",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Run folder. [default: runs/train/POOLING-HASH]")] = None,
    resume: Annotated[
        bool | None,
        typer.Option(
            "--resume/--no-resume",
            help="Require a checkpoint to resume, or start a new run. [default: resume if there is a checkpoint]",
            show_default=False,
        ),
    ] = None,
    weights_root: WeightsRoot = None,
    force: Annotated[
        bool, typer.Option("--force", help="Resume although the data changed since the last checkpoint.")
    ] = False,
    settings: Settings = None,
) -> None:
    """Train one network and write its record and report. Rerun the same command to resume.

    Examples:

    - `isice train --pooling isqrt_cov --data digits`

    - `isice train --recipe paper_cnn --data cub200 --set data.root=CUB_200_2011`

    - `isice train --resume --out runs/train/isice-0123456789ab`: with the settings of that run
    """
    from ..train import train_run
    from ..train.backbone_input import follow_backbone_input
    from ..train.launch import is_main_process
    from ..train.resume import find_finished

    shortcuts = {"model.backbone": model, "model.pooling": pooling, "data.name": data}
    assignments = [f"{key}={value}" for key, value in shortcuts.items() if value is not None]
    chosen = [*assignments, *(settings or [])]
    config = override_recipe(_base_config(recipe, out, resume, default_recipe(chosen)), chosen)
    if not resume:
        config = follow_backbone_input(config)
        config = with_weights(config, find_all(weights_root, [config]))
    name = f"{spec_name(config.model.pooling)}-{config_hash(config)}"
    folder = out or Path("runs") / "train" / name
    mode = {None: "auto", True: "must", False: "never"}[resume]
    if is_main_process() and find_finished(folder, config, mode) is not None:
        tell(f"{folder} is already finished; --no-resume trains it again")
    try:
        train_run(config, folder, resume=mode, force=force)
    except KeyboardInterrupt:
        if is_main_process():
            tell(f"interrupted; rerun the same command to resume {folder}")
        raise
    if is_main_process():
        show_report(folder)
        if lacks_heat_maps(folder):
            tell(f"isice report {folder} adds heat maps of test images")


def default_recipe(assignments: list[str]) -> str:
    """Return ``finetune`` as soon as a backbone is named, else ``small``."""
    named = [text.partition("=")[2].strip() for text in assignments if text.startswith("model.backbone=")]
    return "finetune" if named and named[-1] != "small_cnn" else "small"


def _base_config(recipe: str | None, out: Path | None, resume: bool | None, default: str) -> RunConfig:
    """Return the config of the given recipe, of the run to resume, or of the default recipe."""
    own = None if out is None else out / "config.toml"
    if recipe is None and resume and own is not None and own.is_file():
        return load_config(own)
    return load_recipe(recipe or default)
