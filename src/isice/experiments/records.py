"""Reading what runs left behind."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..config import config_hash, from_dict
from .kinds import KINDS

Record = dict[str, Any]


def read_record(folder: Path) -> Record | None:
    """The record of one run folder, or None if there is none yet."""
    path = folder / "record.json"
    if not path.is_file():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"records: expected a record in {str(path)!r}, which is no JSON: {error}.") from None
    return record | {"folder": str(folder)}


def read_records(folder: str | Path) -> list[Record]:
    """All records under a folder, in the order in which their runs started; each knows its ``folder``."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"records: expected a folder of runs, got {str(folder)!r}, which does not exist.")
    found = find_records(folder)
    if not found:
        raise FileNotFoundError(f"records: expected record.json files under {str(folder)!r}, got none; run first.")
    return found


def find_records(folder: str | Path) -> list[Record]:
    """As :func:`read_records`, but no record is no error."""
    records = [read_record(path.parent) for path in sorted(Path(folder).rglob("record.json"))]
    return sorted((record for record in records if record is not None), key=lambda record: record["started"])


def is_finished(record: Record | None, config_hash: str) -> bool:
    """True if a run with this configuration has finished."""
    return record is not None and record["status"] == "finished" and record["hash"] == config_hash


def finished_folders(records: Iterable[Record]) -> dict[str, Path]:
    """Hash → folder of every finished run."""
    return {record["hash"]: Path(record["folder"]) for record in records if record["status"] == "finished"}


def family_of_config(config: Any) -> str:
    """A hash that is equal for configs that differ in nothing but the seed."""
    return config_hash(replace(config, seed=0))


def family_of_record(record: Record) -> str | None:
    """The family of a record's config; None if this version cannot read that config."""
    try:
        return family_of_config(from_dict(record["config"], KINDS[record.get("kind", "train")]()))
    except (KeyError, TypeError, ValueError):
        return None
