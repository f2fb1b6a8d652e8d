"""Run commands in this process."""

import sys

import pytest
from typer.testing import CliRunner

from isice import cli

QUICK = ["--set", "optim.epochs=1", "--set", "model.reduce=4", "--set", "device=cpu"]


def invoke(*arguments: object) -> str:
    """Run a command; return what it prints."""
    result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def main(monkeypatch, capsys, *arguments: str) -> tuple[int, str, str]:
    """Run the entry point; return its exit status, standard output and standard error."""
    monkeypatch.setattr(sys, "argv", ["isice", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err
