"""Decide whether a run starts, resumes or is finished; results are never silently overwritten."""

import shutil
import warnings
from pathlib import Path
from typing import Any

from .._checks import check_choice
from .._tables import flatten
from ..config import RunConfig, config_hash, to_dict
from ..data.fingerprint import Fingerprint, describe_changes
from ..records import ARRAYS_FILE, EVALUATION_FILE, RECORD_FILE, read_record
from .checkpoint import Checkpoint, has_checkpoint, read_checkpoint
from .logger import METRICS_FILE, TENSORBOARD_FOLDER

RESUME = ("auto", "never", "must")


def holds_run(folder: Path, config: RunConfig) -> bool:
    """Return whether ``folder`` has the record or a checkpoint of exactly this config."""
    record = read_record(folder)
    if record is None and has_checkpoint(folder):
        record = read_checkpoint(folder).meta
    return record is not None and record["hash"] == config_hash(config)


def find_finished(folder: Path, config: RunConfig, resume: str) -> dict[str, Any] | None:
    """Return the record of a run that is finished and need not be trained, or None."""
    check_choice("train", "resume", resume, RESUME)
    record = None if resume == "never" else read_record(folder)
    if record is None or record["status"] != "finished":
        return None
    _check_same(record["hash"], record["config"], config, folder)
    return record


def find_checkpoint(folder: Path, config: RunConfig, resume: str) -> Checkpoint | None:
    """Return the checkpoint to resume from, or None for a new run.

    ``resume="auto"`` resumes if there is a checkpoint, ``"must"`` raises if there is none.
    """
    if resume == "never":
        return None
    if has_checkpoint(folder):
        checkpoint = read_checkpoint(folder)
        _check_same(checkpoint.meta["hash"], checkpoint.meta["config"], config, folder)
        return checkpoint
    if resume == "must":
        raise FileNotFoundError(
            f"train: expected a run to resume in {str(folder)!r}, got no checkpoint there; "
            "name the folder of a run, or start one (resume='auto', without --resume)."
        )
    metrics = folder / METRICS_FILE
    if metrics.is_file() and metrics.stat().st_size > 0:
        raise FileNotFoundError(
            f"train: expected the checkpoint of the epochs in {str(metrics)!r}, got none; "
            "restore checkpoints/last, remove the folder, or start a new run (resume='never', --no-resume)."
        )
    return None


def check_fingerprint(checkpoint: Checkpoint, now: Fingerprint, folder: Path, *, force: bool) -> list[str]:
    """Compare the data with that of a checkpoint; return changes if ``force``, otherwise raise.

    Checkpoints of earlier versions have no fingerprint and are not compared.
    """
    before = checkpoint.meta.get("data")
    changes = [] if before is None else describe_changes(before, now)
    if not changes:
        return []
    listed = "; ".join(changes)
    if not force:
        raise ValueError(
            f"train: expected the data that {str(folder)!r} was trained on, got other data: {listed}; restore it, "
            "start a new run (resume='never', --no-resume), or resume on the new data (force=True, --force)."
        )
    warnings.warn(f"train: resuming on other data, as asked for: {listed}.", stacklevel=3)
    return changes


def clear_run(folder: Path) -> None:
    """Remove the files of an earlier run, and no others."""
    for name in ("checkpoints", TENSORBOARD_FOLDER):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (RECORD_FILE, ARRAYS_FILE, METRICS_FILE, EVALUATION_FILE):
        (folder / name).unlink(missing_ok=True)


def _check_same(found_hash: str, found: dict[str, Any], config: RunConfig, folder: Path) -> None:
    if found_hash == config_hash(config):
        return
    there, here = flatten(found), flatten(to_dict(config))
    keys = [key for key in sorted(there.keys() | here.keys()) if there.get(key) != here.get(key)]
    differences = ", ".join(f"{key} = {there.get(key)!r} instead of {here.get(key)!r}" for key in keys[:4])
    raise ValueError(
        f"train: expected {str(folder)!r} to hold a run of the requested config, got {differences}; "
        "use another folder, or start a new run (resume='never', --no-resume)."
    )
