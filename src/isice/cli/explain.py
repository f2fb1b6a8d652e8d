"""``isice explain``: what networks look at."""

from pathlib import Path
from typing import Annotated

import typer

from ._app import app, tell

DEFAULT = Path("runs/explain")


@app.command()
def explain(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN... IMAGE...", help="Runs, or a folder of runs, then image files or test:7 for a test image."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the page and its pictures. [default: a new runs/explain]")
    ] = None,
    target: Annotated[str | None, typer.Option("--class", help="Class to explain. [default: the predicted]")] = None,
    method: Annotated[str, typer.Option("--method", help="centered, hires_cam or grad_cam.")] = "centered",
    pairs: Annotated[int, typer.Option("--pairs", help="Channel pairs per graph.")] = 6,
    last: Annotated[bool, typer.Option("--last", help="The newest checkpoint instead of the best.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the page and the pictures that --out has.")] = False,
) -> None:
    """Show what networks look at in images: heat maps, maps of a class, graphs of channels.

    Examples:

    - `isice explain runs/demo test:0 test:7`: the networks of an experiment side by side

    - `isice explain runs/mine bird.jpg --class sparrow --out runs/mine/explain`: in the report of the run, too
    """
    from ..explain import explain_runs
    from ..report.explain_page import is_explained

    folders = _runs([Path(name) for name in what if Path(name).is_dir()])
    images = [name for name in what if not Path(name).is_dir()]
    folder = out or _free(DEFAULT)
    if is_explained(folder) and not force:
        raise FileExistsError(
            f"explain: expected a folder without explain.html, got {str(folder)!r}; "
            "choose another --out, or replace what is there with --force."
        )
    which = "last" if last else "best"
    written = explain_runs(folders, images, folder, target=target, which=which, method=method, n_pairs=pairs)
    for path in written.values():
        tell(f"wrote {path}")


def _free(folder: Path) -> Path:
    """The folder, or the next of folder-2, folder-3, … that has no page yet."""
    from ..report.explain_page import is_explained

    number, found = 1, folder
    while is_explained(found):
        number += 1
        found = folder.with_name(f"{folder.name}-{number}")
    return found


def _runs(folders: list[Path]) -> list[Path]:
    """The runs among and in the folders; one without any, such as the figures of a report, is left out with a line."""
    found: list[Path] = []
    for folder in folders:
        inside = (
            [folder] if (folder / "checkpoints").is_dir() else sorted(p.parent for p in folder.glob("*/checkpoints"))
        )
        if not inside and len(folders) > 1:
            tell(f"{folder}: no run, left out")
        found += inside
    return found or folders  # a single folder without a run is an error that names it
