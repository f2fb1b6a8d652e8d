"""``isice explain``: heat maps, class maps and channel graphs."""

from pathlib import Path
from typing import Annotated

import typer

from ._app import Which, app, deprecated, tell
from ._show import has_weights

DEFAULT = Path("runs/explain")


@app.command()
def explain(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN... IMAGE...",
            help="Run folders or a folder of runs, then image files or test:7 for a test image.",
        ),
    ],
    out: Annotated[Path | None, typer.Option("--out", help="Output folder. [default: a new runs/explain]")] = None,
    target: Annotated[
        str | None, typer.Option("--class", help="Class to explain. [default: the predicted one]")
    ] = None,
    method: Annotated[str, typer.Option("--method", help="Class map: centered, hires_cam or grad_cam.")] = "centered",
    pairs: Annotated[int, typer.Option("--pairs", help="Channel pairs per graph.")] = 6,
    which: Which = "best",
    last: Annotated[bool, typer.Option("--last", hidden=True)] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the page and figures in --out.")] = False,
) -> None:
    """Explain images with trained networks: heat maps, class maps and channel graphs.

    Examples:

    - `isice explain runs/digits test:0 test:7`: the networks of an experiment side by side

    - `isice explain runs/mine bird.jpg --class sparrow --out runs/mine/explain`: in its report
    """
    from ..explain import explain_runs
    from ..report.explain_page import is_explained, write_explanations

    folders = _runs([Path(name) for name in what if Path(name).is_dir()])
    images = [name for name in what if not Path(name).is_dir()]
    folder = out or _free(DEFAULT)
    if is_explained(folder) and not force:
        raise FileExistsError(
            f"explain: expected a folder without explain.html, got {str(folder)!r}; "
            "choose another --out, or overwrite it with --force."
        )
    if last:
        deprecated("--last", "--which last")
        which = "last"
    explained = explain_runs(folders, images, target=target, which=which, method=method, n_pairs=pairs)
    for path in write_explanations(explained, folder).values():
        tell(f"wrote {path}")


def _free(folder: Path) -> Path:
    """Return the first of folder, folder-2, folder-3, … without a page."""
    from ..report.explain_page import is_explained

    number, found = 1, folder
    while is_explained(found):
        number += 1
        found = folder.with_name(f"{folder.name}-{number}")
    return found


def _runs(folders: list[Path]) -> list[Path]:
    """Return the run folders among and inside ``folders``; report and skip one without runs."""
    found: list[Path] = []
    for folder in folders:
        inside = [folder] if has_weights(folder) else sorted(path.parent for path in folder.glob("*/checkpoints"))
        if not inside and len(folders) > 1:
            tell(f"{folder}: no run, skipped")
        found += inside
    return found or folders  # loading a single folder without a run raises an error that names it
