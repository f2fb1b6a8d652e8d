"""The kinds of jobs and their configs, found in ``jobs/`` by file name.

A kind is one file, ``jobs/<kind>.py``, with a variable ``JOB`` (see :class:`Job`). Such a file
imports torch only inside its functions: experiments and reports read configs without it.
"""

import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..config import RunConfig, config_hash, from_dict
from ..records import Record

# Backbones without BatchNorm, by the beginning of their names, unless one of the words follows.
_WITHOUT_BATCH_NORM = ("vgg", "convnext", "swin", "vit", "identity")
_WITH_BATCH_NORM = re.compile("_bn|_resnet|_mci")


@dataclass(frozen=True)
class Job:
    """A kind of job: the class of its configs, and how one config is computed.

    ``compute`` returns results, which are recorded. Instead, ``run`` writes its own record; it
    takes config, folder, label and whether to start over.
    """

    config: type  # a frozen dataclass with defaults for all fields and a field seed
    compute: Callable[[Any], dict[str, Any]] | None = None
    run: Callable[[Any, Path, str, bool], None] | None = None


def job_kinds() -> list[str]:
    """Return the names of all kinds of jobs."""
    folders = importlib.import_module(f"{__package__}.jobs").__path__
    return sorted(module.name for module in pkgutil.iter_modules(folders) if not module.name.startswith("_"))


def find_job(kind: str) -> Job:
    """Return the job of a kind; a KeyError if there is none."""
    if kind not in job_kinds():
        raise KeyError(kind)
    job: Job = importlib.import_module(f"{__package__}.jobs.{kind}").JOB
    return job


def kind_of(config: Any) -> str:
    """Return the kind of job that a config belongs to."""
    for kind in job_kinds():
        if find_job(kind).config is type(config):
            return kind
    raise TypeError(f"jobs: expected a config of one of {', '.join(job_kinds())}, got {type(config).__name__}.")


def without_rounding(config: Any) -> Any:
    """Return the config with defaults for the settings that change rounding and memory alone.

    These are ``precision``, ``data.cache`` and ``optim.accumulate``, the last unless BatchNorm,
    mixup or CutMix combine the images of a micro-batch.

    Example:
        >>> from isice.config import override
        >>> without_rounding(override(RunConfig(seed=3), ["precision=bf16"])) == RunConfig(seed=3)
        True
    """
    if not isinstance(config, RunConfig):
        return config
    model, optim = config.model, config.optim
    plain = model.backbone.startswith(_WITHOUT_BATCH_NORM) and not _WITH_BATCH_NORM.search(model.backbone)
    mixed = config.augment.mixup > 0.0 or config.augment.cutmix > 0.0
    if plain and model.reduce is None and "batch_norm" not in model.pooling and not mixed:
        optim = replace(optim, accumulate=1)
    return replace(config, precision="fp32", optim=optim, data=replace(config.data, cache="none"))


def identities(config: Any) -> tuple[str, str]:
    """Return the hash of a config, and that of :func:`without_rounding`."""
    return config_hash(config), f"alike-{config_hash(without_rounding(config))}"


def choose_identities(configs: Iterable[Any]) -> list[str]:
    """Return what identifies each config among the others, and no more."""
    pairs = [identities(config) for config in configs]
    counts = Counter(alike for _, alike in set(pairs))
    return [alike if counts[alike] == 1 else exact for exact, alike in pairs]


def identities_of_record(record: Record) -> tuple[str, ...]:
    """Return the identities of a record's config; its hash alone if it cannot be read."""
    config = _config_of(record)
    return (record["hash"],) if config is None else (record["hash"], identities(config)[1])


def families_of_record(record: Record) -> tuple[str, ...]:
    """Return the identities of a record's config with seed 0, also without the names of weights.

    An experiment without named weight files then finds runs that were started from a file.
    """
    config = _config_of(record)
    if config is None:
        return ()
    config = replace(config, seed=0)
    found: tuple[str, ...] = identities(config)
    if isinstance(config, RunConfig) and config.model.pretrained and config.model.weights is not None:
        unnamed = replace(config, model=replace(config.model, weights=None, checkpoint_path=None))
        found += identities(unnamed)
    return found


def records_by_family(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Return family → records, in their order."""
    found: dict[str, list[Record]] = {}
    for record in records:
        for family in families_of_record(record):
            found.setdefault(family, []).append(record)
    return found


def finished_folders(records: Iterable[Record]) -> dict[str, Path]:
    """Return identity → folder of every finished run."""
    done = [record for record in records if record["status"] == "finished"]
    return {identity: Path(record["folder"]) for record in done for identity in identities_of_record(record)}


def _config_of(record: Record) -> Any:
    """Return the config of a record, or None if this version cannot read it."""
    try:
        return from_dict(record["config"], find_job(record.get("kind", "train")).config())
    except (KeyError, TypeError, ValueError):
        return None
