"""``isice report``: tables and pages from records, with heat maps of test images."""

from pathlib import Path
from typing import Annotated

import typer

from .._checks import suggestion
from ..experiments.loader import list_experiments, load_experiment
from ..experiments.manifest import describe
from ..experiments.plan import read_limits
from ._app import Settings, app
from ._show import RUNS, Limit, draw_heat_maps, lacks_heat_maps, show_report

# Test images in the heat maps of a single run.
IMAGES_OF_A_RUN = 2


@app.command()
def report(
    what: Annotated[str, typer.Argument(help="A folder of runs, a run, or an experiment such as table3.")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder of the runs. [default: runs/EXPERIMENT]")] = None,
    limit: Limit = None,
    settings: Settings = None,
    images: Annotated[
        int | None,
        typer.Option(
            "--images", min=0, help="Test images to draw heat maps of. [default: 2 for a run, else the existing ones]"
        ),
    ] = None,
) -> None:
    """Print the tables of a folder of runs; write report.md, report.tex and report.html.

    For an experiment of the paper: its numbers, ours and the difference; — marks a missing record.

    Examples:

    - `isice report runs/digits --images 3`

    - `isice report table3 --limit dataset=cub`

    - `isice report table1 --set optim.epochs=24`: the runs with this setting
    """
    if Path(what).is_dir():
        if limit or settings or out:
            raise ValueError(
                "report: expected --limit, --set and --out with an experiment, got a folder; name the experiment."
            )
        folder, manifest, limits = Path(what), None, None
    elif what in list_experiments() or what.endswith(".toml"):
        chosen = load_experiment(what).with_settings(settings or ())
        folder, manifest = out or RUNS / chosen.name, describe(chosen, "." if out else "..")
        limits = read_limits(chosen, limit or ())
    else:
        folders = [str(path) for path in [*RUNS.glob("*"), RUNS] if path.is_dir()]
        raise FileNotFoundError(
            f"report: expected a folder of runs, a run or an experiment ({', '.join(list_experiments())}), got "
            f"{what!r}, which is none.{suggestion(what, [*list_experiments(), *folders])}"
        )
    if images is None and lacks_heat_maps(folder):
        draw_heat_maps(folder, manifest, IMAGES_OF_A_RUN)
    elif images:
        draw_heat_maps(folder, manifest, images, asked=True)
    show_report(folder, manifest, limits)
