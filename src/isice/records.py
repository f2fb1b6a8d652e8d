"""The record of a run, ``record.json``: what was computed, with what, on what, and the results.

This module is the only place that knows the file. Fields of every record:

- ``schema``: version of the format.
- ``status``: ``"started"``, ``"finished"``, ``"failed"`` or ``"interrupted"``; the last two have an
  ``error``.
- ``kind``: the kind of job, ``"train"`` if absent.
- ``hash``, ``config``, ``seed``: what was computed.
- ``started``, ``commit``, ``versions``, ``hardware``: when, with which code, on which machine.

A finished record also holds the results of its job. Torch is not imported here: reports read
records without it.
"""

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from . import __version__
from ._atomic import write_atomically
from .config import config_hash, to_dict

SCHEMA = 1
RECORD_FILE = "record.json"
EVALUATION_FILE = "evaluation.json"
ARRAYS_FILE = "arrays.npz"

Record = dict[str, Any]
_REQUIRED = ("status", "hash", "started")
_PACKAGES = ("torch", "torchvision", "timm", "numpy", "scikit-learn", "lightning-fabric", "lightning")


def new_record(config: Any, hardware: Mapping[str, Any]) -> Record:
    """Return a record with everything known before the job starts.

    Args:
        config: The config of the job.
        hardware: The machine, as :func:`isice.train.hardware.hardware` describes it.
    """
    return {
        "schema": SCHEMA,
        "status": "started",
        "hash": config_hash(config),
        "config": to_dict(config),
        "seed": config.seed,
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "versions": versions(),
        "hardware": dict(hardware),
    }


def failure(error: Exception) -> Record:
    """Return the fields of a failed record; call it while the exception is being handled."""
    return {"status": "failed", "error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}


def write_record(folder: Path, record: Record) -> Path:
    """Write ``folder/record.json`` atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / RECORD_FILE
    write_atomically(path, json.dumps(record, indent=1, ensure_ascii=False))
    return path


def read_record(folder: Path) -> Record | None:
    """Return the record of a run folder, or None if there is none yet."""
    path = folder / RECORD_FILE
    if not path.is_file():
        return None
    try:
        record: Record = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"records: expected a record in {str(path)!r}, got invalid JSON: {error}.") from None
    missing = [name for name in _REQUIRED if name not in record] if isinstance(record, dict) else list(_REQUIRED)
    if missing:
        raise ValueError(f"records: expected a record in {str(path)!r}, got a file without {', '.join(missing)}.")
    if record.get("schema", SCHEMA) > SCHEMA:
        raise ValueError(
            f"records: expected a record of schema {SCHEMA} or older in {str(path)!r}, got {record['schema']}; "
            "update isice."
        )
    return record


def find_records(folder: str | Path) -> list[Record]:
    """Return all records under a folder by start time, each with its ``folder`` added."""
    folders = sorted(path.parent for path in Path(folder).rglob(RECORD_FILE))
    found = [record | {"folder": str(own)} for own in folders if (record := read_record(own)) is not None]
    return sorted(found, key=lambda record: record["started"])


def finished_folders(records: Iterable[Record]) -> dict[str, Path]:
    """Return config hash → folder of every finished run."""
    return {record["hash"]: Path(record["folder"]) for record in records if record["status"] == "finished"}


def read_evaluations(folder: Path) -> list[dict[str, Any]]:
    """Return the evaluations that ``isice eval`` has stored in a run folder."""
    path = folder / EVALUATION_FILE
    if not path.is_file():
        return []
    try:
        found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["evaluations"]
    except (json.JSONDecodeError, KeyError, TypeError):
        raise ValueError(f"eval: expected evaluations in {str(path)!r}, got something else; move it away.") from None
    return found


def evaluation_on_test(record: Record) -> dict[str, Any] | None:
    """Return the evaluation of the reported epoch on the test data without flips, or None."""
    found = read_evaluations(Path(record["folder"]))
    plain = [one for one in found if one["split"] == "test" and one["which"] == "best" and not one["flip"]]
    return plain[-1] if plain else None


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results depend on."""
    found = {"isice": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str | None:
    """Return the commit of the checkout that this package is imported from, or None.

    Uncommitted changes add ``+dirty``. ``ISICE_COMMIT`` names the commit of a copy without its
    repository.
    """
    if os.environ.get("ISICE_COMMIT"):
        return os.environ["ISICE_COMMIT"]
    package = Path(__file__).resolve().parent
    # An installed package may lie inside another project's repository: check that git tracks it.
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    head = _git(package, "rev-parse", "--short=12", "HEAD")
    changes = _git(package, "status", "--porcelain", "--", ".")
    return f"{head}+dirty" if head and changes else head


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
