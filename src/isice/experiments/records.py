"""Reading what runs left behind."""

import json
from pathlib import Path
from typing import Any

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
    records = [read_record(path.parent) for path in sorted(folder.rglob("record.json"))]
    found = [record for record in records if record is not None]
    if not found:
        raise FileNotFoundError(f"records: expected record.json files under {str(folder)!r}, got none; run first.")
    return sorted(found, key=lambda record: record["started"])


def is_finished(record: Record | None, config_hash: str) -> bool:
    """True if a run with this configuration has finished."""
    return record is not None and record["status"] == "finished" and record["hash"] == config_hash
