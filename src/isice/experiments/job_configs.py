"""The kinds of jobs and their configs, found in ``jobs/`` by file name.

A kind is one file, ``jobs/<kind>.py``, with a variable ``JOB`` (see :class:`Job`). Such a file
imports torch only inside its functions, so that experiments and reports can read configs without
it.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..config import config_hash, from_dict
from ..records import Record


@dataclass(frozen=True)
class Job:
    """A kind of job: the class of its configs, and how one config is computed.

    Attributes:
        config: A frozen dataclass with defaults for all fields and a field ``seed``.
        compute: Returns the results of a config; the record is written around it.
        run: For jobs that write their own record: called with config, folder, label and whether to
            start over.
    """

    config: type
    compute: Callable[[Any], dict[str, Any]] | None = None
    run: Callable[[Any, Path, str, bool], None] | None = None


def job_kinds() -> list[str]:
    """Return the names of all kinds of jobs.

    Example:
        >>> "train" in job_kinds()
        True
    """
    folders = importlib.import_module(f"{__package__}.jobs").__path__
    return sorted(module.name for module in pkgutil.iter_modules(folders) if not module.name.startswith("_"))


def find_job(kind: str) -> Job:
    """Return the job of a kind; a KeyError if there is none."""
    if kind not in job_kinds():
        raise KeyError(kind)
    job: Job = importlib.import_module(f"{__package__}.jobs.{kind}").JOB
    return job


def kind_of(config: Any) -> str:
    """Return the kind of job that a config belongs to.

    Example:
        >>> kind_of(find_job("bench").config())
        'bench'
    """
    for kind in job_kinds():
        if find_job(kind).config is type(config):
            return kind
    raise TypeError(f"jobs: expected a config of one of {', '.join(job_kinds())}, got {type(config).__name__}.")


def family_of_config(config: Any) -> str:
    """Return a hash that is equal for configs that differ only in the seed."""
    return config_hash(replace(config, seed=0))


def family_of_record(record: Record) -> str | None:
    """Return the family of a record's config, or None if this version cannot read that config."""
    try:
        return family_of_config(from_dict(record["config"], find_job(record.get("kind", "train")).config()))
    except (KeyError, TypeError, ValueError):
        return None
