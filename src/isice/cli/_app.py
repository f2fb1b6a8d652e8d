"""The command-line application, its entry point and its output helpers.

Commands import torch inside their functions, so that ``isice --help`` and reports start fast.
"""

import os
import sys
import traceback
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .. import __version__
from .._extras import missing_package
from .._markup import escape_control

app = typer.Typer(
    name="isice",
    help="Partial-correlation and other second-order representations: layers, models and training.",
    epilog="Exit status: 0 success, 1 partial failure (the rest is done), 2 invalid input, 130 interrupted. "
    "ISICE_DEBUG=1 shows tracebacks.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
console = Console()
# Errors with a message for users. Any other exception is a bug and shows its traceback.
_USER_ERRORS = (ValueError, TypeError, OSError, FloatingPointError, ImportError)

Settings = Annotated[list[str] | None, typer.Option("--set", metavar="a.b=c", help="Override a setting; repeatable.")]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")]
Which = Annotated[
    str, typer.Option("--which", metavar="best|last", help="Checkpoint: the reported epoch or the newest.")
]

Device = Annotated[str, typer.Option("--device", help="Device: auto, cpu, cuda:0 …")]
BATCH_SIZE = typer.Option("--batch-size", help="Images per batch.")
WeightsRoot = Annotated[
    Path | None,
    typer.Option(
        "--weights-root",
        envvar="ISICE_WEIGHTS",
        help="Folder with one weight file per backbone, such as vgg16.safetensors.",
    ),
]


def deprecated(old: str, new: str) -> None:
    """Warn that an option was renamed."""
    warnings.warn(f"{old} is deprecated; write {new}.", FutureWarning, stacklevel=2)


def main() -> None:
    """Run the command line. User errors print one line and exit with 2, Ctrl-C exits with 130."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            app()
    except KeyboardInterrupt:
        sys.exit(130)
    except _USER_ERRORS as error:
        if os.environ.get("ISICE_DEBUG"):
            traceback.print_exc()
        _fail(_one_line(error))
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":  # torch's, which is not imported here
            raise
        _fail("isice: expected the batch to fit on the GPU, got out of memory; lower the batch size or the image size.")


def _one_line(error: Exception) -> str:
    hint = missing_package(error) if isinstance(error, ModuleNotFoundError) else None
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        hint = (
            f"isice: expected to use {str(error.filename)!r}, got {error.strerror.lower()!r}; "
            "check the path and its permissions."
        )
    return hint or " ".join(str(error).split()) or type(error).__name__


def _fail(message: str) -> NoReturn:
    _print_plain(Console(stderr=True), f"error: {message}", "red")
    sys.exit(2)


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """Print warnings for users on one line; those for developers keep their file and line."""
    if issubclass(category, FutureWarning | UserWarning):
        _print_plain(Console(stderr=True), f"warning: {message}", "yellow")
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))


def tell(line: str, style: str | None = None) -> None:
    """Print one line without markup or highlighting."""
    _print_plain(console, line, style)


def _print_plain(where: Console, line: str, style: str | None = None) -> None:
    text = escape_control(line)
    where.print(text, style=style, markup=False, emoji=False, highlight=False, soft_wrap=True)


class PlainTable(Table):
    """A table whose strings are shown as they are: brackets in a name are not markup."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Add a row of strings and of rich's renderables."""
        super().add_row(*(plain(cell) if isinstance(cell, str) else cell for cell in cells), **options)


def plain(text: str) -> Text:
    """Return a string for a table or console: no markup, control characters escaped."""
    return Text(escape_control(text))


def table(*columns: str, title: str | None = None) -> PlainTable:
    """Create a table whose last column wraps."""
    heading = None if title is None else plain(title)
    made = PlainTable(box=SIMPLE_HEAD, header_style="bold", title=heading, title_justify="left")
    for index, column in enumerate(columns):
        made.add_column(column, no_wrap=index < len(columns) - 1, overflow="fold")
    return made


def facts_table(rows: Iterable[tuple[str, object]]) -> Table:
    """Create a two-column table of names and values."""
    made = PlainTable(show_header=False, box=None)
    for name, value in rows:
        made.add_row(name, str(value))
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
    """Accept the options that precede a command."""
