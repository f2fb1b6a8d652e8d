"""Runs the cells of an experiment in turn: finished ones are skipped, failed ones do not stop the others."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..config import RunConfig, config_hash, to_dict
from .loader import Cell, Experiment
from .records import is_finished, read_record

Train = Callable[[RunConfig, Path, str], Any]


@dataclass
class Outcome:
    """The names of the cells that were run, skipped and failed; failures with their message."""

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def run_experiment(
    experiment: Experiment,
    out: str | Path,
    train: Train,
    *,
    force: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Runs every cell that has no finished record under ``out`` yet.

    Args:
        experiment: What to run.
        out: Folder for the runs, one subfolder each.
        train: Trains one config into a folder under a label and leaves a record there, also of a failure.
        force: Run finished cells again.
        tell: Gets one line of text per cell that is skipped or failed.
    """
    out = Path(out)
    cells = experiment.cells()
    write_manifest(experiment, cells, out)
    outcome = Outcome()
    for cell in cells:
        if not force and is_finished(read_record(out / cell.name), config_hash(cell.config)):
            outcome.skipped.append(cell.name)
            tell(f"{cell.label}: finished before, skipped")
            continue
        try:
            train(cell.config, out / cell.name, cell.label)
            outcome.done.append(cell.name)
        except Exception as error:
            outcome.failed[cell.name] = f"{type(error).__name__}: {error}"
            tell(f"{cell.label}: failed: {error}")
    return outcome


def write_manifest(experiment: Experiment, cells: list[Cell], out: Path) -> None:
    """Writes ``experiment.json``: title and cells, so that a report knows what is missing."""
    out.mkdir(parents=True, exist_ok=True)
    manifest = {
        "name": experiment.name,
        "title": experiment.title,
        "description": experiment.description,
        "cells": [
            {"name": c.name, "label": c.label, "hash": config_hash(c.config), "config": to_dict(c.config)}
            for c in cells
        ],
    }
    text = json.dumps(manifest, indent=1, ensure_ascii=False)
    partial = out / "experiment.partial"
    partial.write_text(text, encoding="utf-8")
    partial.replace(out / "experiment.json")
