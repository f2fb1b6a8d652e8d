"""The command-line application, its entry point and its output helpers.

Commands import torch inside their functions, so that ``isice --help`` and reports start fast.
"""

import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .. import __version__
from .._extras import missing_package

app = typer.Typer(
    name="isice",
    help="Partial-correlation and other second-order representations: layers, models, training and evidence.",
    epilog="Exit status: 0 done, 1 something failed and the rest is done, 2 wrong input, 130 interrupted. "
    "ISICE_DEBUG=1 shows tracebacks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
console = Console()
# Errors with a message for users. Any other exception is a bug and shows its traceback.
_USER_ERRORS = (ValueError, TypeError, OSError, FloatingPointError, ImportError)

Settings = Annotated[list[str] | None, typer.Option("--set", metavar="a.b=c", help="Override a setting; repeatable.")]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]
Which = Annotated[str, typer.Option("--which", metavar="best|last", help="The reported epoch, or the newest.")]


def main() -> None:
    """The entry point: an error is one line and status 2, Ctrl-C is status 130; ISICE_DEBUG=1 adds the traceback."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except _USER_ERRORS as error:
        if os.environ.get("ISICE_DEBUG"):
            traceback.print_exc()
        hint = missing_package(error) if isinstance(error, ModuleNotFoundError) else None
        text = hint or " ".join(str(error).split()) or type(error).__name__
        Console(stderr=True).print(f"error: {text}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)


def tell(line: str, style: str | None = None) -> None:
    """Prints one line as it is, whatever brackets and numbers are in it."""
    console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)


def table(*columns: str, title: str | None = None) -> Table:
    """A light table whose last column alone may wrap."""
    made = Table(box=SIMPLE_HEAD, header_style="bold", title=title, title_justify="left")
    for index, column in enumerate(columns):
        made.add_column(column, no_wrap=index < len(columns) - 1, overflow="fold")
    return made


def facts_table(rows: Iterable[tuple[str, object]]) -> Table:
    """Names and values, two columns without rules."""
    made = Table(show_header=False, box=None)
    for name, value in rows:
        made.add_row(name, Text(str(value)))  # brackets in a value are no markup
    return made


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
