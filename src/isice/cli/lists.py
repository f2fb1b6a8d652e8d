"""``isice list``: pooling layers, backbones, datasets, recipes and experiments."""

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from ._app import app, console, table


@app.command("list")
def list_(
    backbones: Annotated[bool, typer.Option("--backbones", help="The paper's backbones.")] = False,
    datasets: Annotated[bool, typer.Option("--datasets", help="The datasets.")] = False,
    recipes: Annotated[bool, typer.Option("--recipes", help="The recipes (training settings).")] = False,
    experiments: Annotated[bool, typer.Option("--experiments", help="The experiments (grids of runs).")] = False,
) -> None:
    """List pooling layers, or what the options select.

    Example: `isice list --recipes --datasets`
    """
    choices = ((backbones, _backbones), (datasets, _datasets), (recipes, _recipes), (experiments, _experiments))
    for make in [make for wanted, make in choices if wanted] or [_poolings]:
        console.print(make())


def _poolings() -> Table:
    from ..pooling import create_pooling, list_poolings, pooling_class

    made = table("pooling", "out at 256", "fidelity", "reference, options and their defaults")
    made.columns[1].justify = "right"
    for name in list_poolings():
        cls = pooling_class(name)
        width = "classes" if cls.needs_num_classes else f"{create_pooling(name, 256).out_features:,}"
        options = ", ".join(f"{option}={default!r}" for option, default in cls.option_defaults().items())
        about = Text(cls.reference)
        made.add_row(name, width, cls.fidelity, about.append(f"\n{options}", style="cyan") if options else about)
    return made


def _backbones() -> Table:
    from ..models import PAPER_BACKBONES

    made = table(
        "backbone", "timm name", title="Backbones of the paper. Any timm backbone with a spatial feature map works."
    )
    for short, entry in PAPER_BACKBONES.items():
        made.add_row(short, str(entry))
    return made


def _datasets() -> Table:
    from ..data import DATASETS

    made = table("dataset", "classes", "train", "test", "size", "source")
    for name, info in DATASETS.items():
        size = f"{info.channels}×{info.image_size}×{info.image_size}"
        counts = (info.num_classes, info.train_size, info.test_size)
        made.add_row(name, *("any" if count is None else f"{count:,}" for count in counts), size, info.source)
    return made


def _recipes() -> Table:
    from ..experiments.loader import list_recipes, load_recipe

    made = table("recipe", "epochs", "settings")
    for name in list_recipes():
        config = load_recipe(name)
        data, optim = config.data, config.optim
        size = "default size" if data.image_size is None else f"{data.image_size} px"
        schedule = f"step at {', '.join(map(str, optim.milestones))}" if optim.schedule == "step" else optim.schedule
        how = f"{config.model.backbone} on {data.name}, {size}, batch {data.batch_size}, {config.precision}; "
        made.add_row(name, str(optim.epochs), f"{how}{optim.optimizer} from {optim.lr:g}, {schedule}")
    return made


def _experiments() -> Table:
    from ..experiments.loader import list_experiments, load_experiment

    made = table("experiment", "runs", "title")
    for name in list_experiments():
        experiment = load_experiment(name)
        made.add_row(name, str(len(experiment.cells())), experiment.title)
    return made
