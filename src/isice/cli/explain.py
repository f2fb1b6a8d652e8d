"""``isice explain``: what networks look at."""

from pathlib import Path
from typing import Annotated

import typer

from ._app import app, tell


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
    from ..explain import explain_runs

    folders, images = [name for name in what if Path(name).is_dir()], [name for name in what if not Path(name).is_dir()]
    which = "last" if last else "best"
    written = explain_runs(folders, images, out, target=target, which=which, method=method, n_pairs=pairs)
    for path in written.values():
        tell(f"wrote {path}")
