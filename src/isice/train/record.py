"""The record of a run: what was computed, with what, on what, and what came out. Reports read nothing else."""

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from .. import __version__
from ..config import RunConfig, config_hash, to_dict

SCHEMA = 1
RECORD_FILE = "record.json"
ARRAYS_FILE = "arrays.npz"
EVALUATION_FILE = "evaluation.json"


def new_record(config: RunConfig) -> dict[str, Any]:
    """A record with everything known before training starts; the device is added once it is found."""
    return {
        "schema": SCHEMA,
        "status": "started",
        "hash": config_hash(config),
        "config": to_dict(config),
        "seed": config.seed,
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "versions": versions(),
        "hardware": hardware(),
    }


def write_record(folder: Path, record: dict[str, Any]) -> Path:
    """Writes ``folder/record.json`` in one step."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / RECORD_FILE
    write_atomically(path, json.dumps(record, indent=1, ensure_ascii=False))
    return path


def read_record(folder: Path) -> dict[str, Any] | None:
    """The record of a run folder, or None if there is none yet."""
    path = folder / RECORD_FILE
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"record: expected a record in {str(path)!r}, which is no JSON: {error}.") from None


def write_atomically(path: Path, text: str) -> None:
    """Writes a file in one step: a reader sees the old content or the new, never half of it."""
    partial = path.with_suffix(".partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a result can depend on."""
    found = {"isice": __version__, "python": platform.python_version()}
    for name in ("torch", "torchvision", "timm", "numpy", "scikit-learn", "lightning-fabric", "lightning"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def hardware(device: torch.device | None = None) -> dict[str, Any]:
    """The CPU, and the device that computes."""
    found: dict[str, Any] = {"cpu": _cpu_name(), "cores": os.cpu_count(), "threads": torch.get_num_threads()}
    if device is not None:
        found["device"] = str(device)
    if device is not None and device.type == "cuda":
        found["gpu"] = torch.cuda.get_device_name(device)
        found["gpus"] = torch.cuda.device_count()
        found["cuda"] = torch.version.cuda
    return found


def commit() -> str | None:
    """The commit of the checkout that this package is imported from ("+dirty" with changes), or None outside one.

    A copy without its repository can be told by the variable ``ISICE_COMMIT``.
    """
    if os.environ.get("ISICE_COMMIT"):
        return os.environ["ISICE_COMMIT"]
    package = Path(__file__).resolve().parents[1]
    # An environment inside someone else's repository must not borrow that repository's commit.
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


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
