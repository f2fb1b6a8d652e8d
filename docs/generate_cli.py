"""docs/cli.md: every command of ``isice`` with its arguments and options, from the application."""

import inspect
import re
from pathlib import Path
from typing import Any

from typer.main import get_command

from isice.cli import app

PAGE = Path(__file__).resolve().parent / "cli.md"
HEADER = """# Command line

<!-- Generated from the commands by `python docs/build.py cli`; do not edit. -->

All commands and options of `isice`. `isice COMMAND --help` shows the same in a terminal.
"""


def pages() -> dict[Path, str]:
    """Return the whole page."""
    group: Any = get_command(app)
    parts = [HEADER, f"{group.epilog}\n"]
    parts += [_section(name, command) for name, command in group.commands.items()]
    return {PAGE: "\n".join(parts)}


def _section(name: str, command: Any) -> str:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    usage = " ".join(["isice", name, *(_argument(argument) for argument in arguments), "[OPTIONS]"])
    text = re.sub(r"\n\s*\n(?=- )", "\n", inspect.cleandoc(command.help or ""))
    lines = [f"## {name}", "", f"```text\n{usage}\n```", "", re.sub(r"(?<!\n)\n(- )", r"\n\n\1", text, count=1), ""]
    if arguments or options:
        lines += ["| option | meaning |", "|---|---|"]
        lines += [f"| `{_argument(argument)}` | {_cell(argument.help)} |" for argument in arguments]
        lines += [f"| {_names(option)} | {_cell(option.help)}{_default(option)} |" for option in options]
    return "\n".join(lines) + "\n"


def _argument(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name}]"


def _names(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    takes_value = not option.is_flag and option.metavar
    return f"{names} `{_cell(option.metavar)}`" if takes_value else names


def _default(option: Any) -> str:
    variable = f" [env var: {option.envvar}]" if option.envvar else ""
    shown = option.default not in (None, False, "", [], ()) and "[default" not in (option.help or "")
    return f" [default: {option.default}]" if shown and not callable(option.default) else variable


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")
