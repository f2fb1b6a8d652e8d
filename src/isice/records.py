"""The record of a run, ``record.json``: what was computed, with what, on what, and the results.

This module is the only place that knows the file. Fields of every record:

- ``schema``: version of the format.
- ``status``: ``"started"``, ``"finished"``, ``"failed"`` or ``"interrupted"``; the last two have an
  ``error``.
- ``kind``: the kind of job, ``"train"`` if absent.
- ``hash``, ``config``, ``seed``: what was computed.
- ``started``, ``commit``, ``versions``, ``hardware``: when, with which code, on which machine.

A finished record also holds the results of its job. Reports read records without torch.
"""

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import __version__
from ._atomic import write_atomically
from ._checks import is_number
from .config import config_hash, to_dict

SCHEMA = 1
RECORD_FILE = "record.json"
EVALUATION_FILE = "evaluation.json"
ARRAYS_FILE = "arrays.npz"
SAMPLES_FILE = "samples.png"

Record = dict[str, Any]
# Fields of every record, and of the results of a training run, with their types.
_REQUIRED = {"status": str, "hash": str, "started": str}
_FACTS = {"config": dict, "versions": dict, "hardware": dict}
_RESULTS = {"accuracy": dict, "images": dict, "parameters": dict, "epochs": list}
_STATUS = ("started", "finished", "failed", "interrupted")
# Types of the fields of an evaluation that reports read.
_TYPES: dict[str, type] = {"split": str, "which": str, "flip": bool, "classes": list, "confusion": list}
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
    expected = f"records: expected a record in {str(path)!r}, got"
    try:
        record: Record = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{expected} invalid JSON: {error}.") from None
    missing = [name for name in _REQUIRED if name not in record] if isinstance(record, dict) else list(_REQUIRED)
    if missing:
        raise ValueError(f"{expected} a file without {', '.join(missing)}.")
    wrong = _damaged_fields(record)
    if wrong:
        raise ValueError(f"{expected} other values of {', '.join(wrong)}; the file is damaged.")
    if record.get("schema", SCHEMA) > SCHEMA:
        raise ValueError(
            f"records: expected a record of schema {SCHEMA} or older in {str(path)!r}, got {record['schema']}; "
            "update isice."
        )
    return record


def _damaged_fields(record: Record) -> list[str]:
    """Return the names of fields with values that no record has."""
    types: dict[str, type] = {**_REQUIRED, **_FACTS, "schema": int}
    types |= {"error": str} if record["status"] in ("failed", "interrupted") else {}
    # Other kinds of jobs have other results under these names.
    training = record.get("kind", "train") == "train"
    types |= _RESULTS if training else {}
    wrong = [name for name, kind in types.items() if name in record and not isinstance(record[name], kind)]
    wrong += [] if record["status"] in _STATUS else ["status"]
    return wrong or (_damaged_results(record) if training else [])


def _damaged_results(record: Record) -> list[str]:
    tables = {name: record.get(name, {}) for name in ("accuracy", "images", "parameters")}
    wrong = [name for name, table in tables.items() if not all(map(is_number, table.values()))]
    whole = all(isinstance(row, dict) and is_number(row.get("epoch")) for row in record.get("epochs", []))
    return wrong if whole else [*wrong, "epochs"]


def find_records(folder: str | Path) -> list[Record]:
    """Return all records under a folder by start time, each with its ``folder`` added.

    Damaged records are left out, with a warning that names the file.
    """
    found = []
    for own in sorted(path.parent for path in Path(folder).rglob(RECORD_FILE)):
        try:
            record = read_record(own)
        except (ValueError, OSError) as error:
            warnings.warn(f"{error} It is left out.", stacklevel=2)
            continue
        if record is not None:
            found.append(record | {"folder": str(own)})
    return sorted(found, key=lambda record: record["started"])


def read_evaluations(folder: Path) -> list[dict[str, Any]]:
    """Return the evaluations that ``isice eval`` has stored in a run folder."""
    path = folder / EVALUATION_FILE
    if not path.is_file():
        return []
    try:
        found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["evaluations"]
        names = [name for one in found for name in ("split", "which", "flip") if name not in one]
        whole = not names and all(isinstance(one.get(n, kind()), kind) for one in found for n, kind in _TYPES.items())
    except (ValueError, KeyError, TypeError, RecursionError):
        whole = False
    if not whole:
        raise ValueError(f"eval: expected evaluations in {str(path)!r}, got something else; move it away.")
    return found


def evaluation_on_test(record: Record) -> dict[str, Any] | None:
    """Return the evaluation of the reported epoch on the test data without flips, or None.

    A damaged file counts as none, with a warning that names it.
    """
    try:
        found = read_evaluations(Path(record["folder"]))
    except ValueError as error:
        warnings.warn(f"{error} It is left out.", stacklevel=2)
        return None
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

    Uncommitted changes add ``+dirty``. ``ISICE_COMMIT`` names the commit of a copy without git.
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
