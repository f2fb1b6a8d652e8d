"""``isice list``: pooling layers, backbones, datasets, recipes and experiments."""

import ast
import importlib.metadata
import inspect
import pydoc
import re
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from ..experiments.loader import list_experiments, list_recipes, load_experiment, load_recipe
from ._app import app, console, facts_table, table, tell

_POOLING = Path(__file__).resolve().parents[1] / "pooling"


@app.command("list")
def list_(
    name: Annotated[str | None, typer.Argument(help="A pooling, to show its source, options and defaults.")] = None,
    backbones: Annotated[bool, typer.Option("--backbones", help="The paper's backbones.")] = False,
    datasets: Annotated[bool, typer.Option("--datasets", help="The datasets.")] = False,
    recipes: Annotated[bool, typer.Option("--recipes", help="The recipes (training settings).")] = False,
    experiments: Annotated[bool, typer.Option("--experiments", help="The experiments (grids of runs).")] = False,
) -> None:
    """List poolings; describe one; or list what the options select.

    Examples:

    - `isice list`

    - `isice list isice`: what it computes, its options and defaults

    - `isice list --recipes --datasets`
    """
    if name is not None:
        _describe(name)
        return
    choices = ((backbones, _backbones), (datasets, _datasets), (recipes, _recipes), (experiments, _experiments))
    for make in [make for wanted, make in choices if wanted] or [_poolings]:
        console.print(make())


def _poolings() -> Table:
    made = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    summaries = pooling_summaries()
    made.add_column(no_wrap=True, min_width=max(map(len, summaries)))
    made.add_column()
    for name, summary in summaries.items():
        made.add_row(Text(name, style="bold"), Text(summary))
    return made


def pooling_summaries() -> dict[str, str]:
    """Return name → first line of the docstring, read without torch, or the package it is of."""
    found = {path.stem: _summary(path) for path in _POOLING.glob("[a-z]*.py")}
    for entry in importlib.metadata.entry_points(group="isice.poolings"):
        found.setdefault(entry.name, f"of the package {entry.dist.name if entry.dist is not None else entry.value}")
    return dict(sorted(found.items()))


def _summary(path: Path) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    registered = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.decorator_list]
    text = ast.get_docstring(registered[0] if registered else tree) or ""
    return text.partition("\n")[0].replace("``", "").rstrip(".")


def _describe(name: str) -> None:
    """Print what a pooling computes, its source, output size and options."""
    from ..pooling import create_pooling, pooling_class

    cls = pooling_class(name)
    layer = create_pooling(name, 256, num_classes=1000)
    size = "one logit per class" if cls.needs_num_classes else f"{layer.out_features:,} features"
    facts = {"source": cls.reference, "definition": cls.fidelity, "output at 256 channels": size}
    if cls.assumed:
        facts["assumed"] = cls.assumed
    tell(_documentation(cls))
    console.print()
    console.print(facts_table({**facts, "spec with defaults": layer.spec}.items()))


def _documentation(documented: type) -> str:
    """Return a docstring up to its example, with its options from the function it names."""
    options = inspect.signature(documented).parameters
    text = inspect.cleandoc(documented.__doc__ or "").partition("\nExample:")[0].strip()
    for path in re.findall(r"Options as in :func:`([\w.]+)`", text):
        described = inspect.cleandoc(getattr(pydoc.locate(path), "__doc__", None) or "")
        arguments = re.split(r"\n(?=\w+:\n)", described.partition("\nArgs:")[2])[0].rstrip()
        entries = re.split(r"\n    (?=\w)", arguments)
        text += "\n\nArgs:" + "".join(f"\n    {entry}" for entry in entries if entry.partition(":")[0] in options)
    return re.sub(r":\w+:`~?([^`]+)`", r"\1", text.replace("``", ""))


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
    made = table("experiment", "runs", "title")
    for name in list_experiments():
        experiment = load_experiment(name)
        made.add_row(name, str(len(experiment.cells())), experiment.title)
    return made
