"""``experiment.json``: what the report of an experiment needs in addition to records."""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from .._atomic import write_atomically
from .._checks import check_choice
from ..config import to_dict
from .job_configs import choose_identities
from .loader import Experiment
from .published_numbers import METRIC, Aggregate, Metric, Note, PublishedTable

FILE = "experiment.json"
_RUNS_ROOTS = (".", "..")
# Fields under another key in the file, whose format is fixed.
_KEYS = {"published": "printed", "runs_root": "pool"}


@dataclass(frozen=True)
class Entry:
    """One run of the experiment."""

    name: str
    label: str
    hash: str
    family: str
    at: dict[str, str]
    config: dict[str, Any]


@dataclass(frozen=True)
class Manifest:
    """Titles, runs and published numbers of an :class:`isice.experiments.loader.Experiment`."""

    name: str
    title: str
    description: str
    kind: str = "train"
    after: str = ""
    axes: dict[str, dict[str, str]] = field(default_factory=dict)  # axis → value → label
    metrics: tuple[Metric, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    published: PublishedTable | None = None
    plot: dict[str, Any] = field(default_factory=dict)
    changed: tuple[str, ...] = ()  # overrides a.b=c that change results
    runs_root: str = "."  # folder of the records: the manifest's own, or "..", which experiments share; no other
    cells: tuple[Entry, ...] = ()
    limits: dict[str, tuple[str, ...]] = field(default_factory=dict)  # axis → values, for cells and tables

    def __post_init__(self) -> None:
        check_choice("experiment", "pool", self.runs_root, _RUNS_ROOTS)


def describe(
    experiment: Experiment, runs_root: str = ".", limits: Mapping[str, Collection[str]] | None = None
) -> Manifest:
    """Return the manifest of an experiment, limited to values of axes.

    Its records are in ``runs_root``.
    """
    limits = {axis: tuple(values) for axis, values in (limits or {}).items()}
    axes = {axis.name: {value.name: value.label for value in axis.values} for axis in experiment.axes}
    for aggregate in experiment.aggregates:
        if aggregate.axis in axes:
            axes[aggregate.axis][aggregate.name] = aggregate.label
    axes[METRIC] = {metric.name: metric.label for metric in experiment.metrics}
    runs = [c for c in experiment.cells() if all(c.at[axis] in values for axis, values in limits.items())]
    families = choose_identities(replace(c.config, seed=0) for c in runs)
    cells = tuple(
        Entry(c.name, c.label, c.hash, family, c.at, to_dict(c.config))
        for c, family in zip(runs, families, strict=True)
    )
    own: dict[str, Any] = {"axes": axes, "runs_root": runs_root, "cells": cells, "limits": limits}
    return Manifest(**own, **{f.name: getattr(experiment, f.name) for f in fields(Manifest) if f.name not in own})


def united_limits(manifest: Manifest | None, name: str, limits: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """Return limits that hold those of an earlier manifest of the same experiment, too."""
    before = limits if manifest is None or manifest.name != name else manifest.limits
    return {axis: sorted({*before[axis], *values}) for axis, values in limits.items() if axis in before}


def write_manifest(manifest: Manifest, folder: Path) -> None:
    """Write ``experiment.json`` atomically; several processes may do so at once."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / FILE, format_manifest(manifest))


def format_manifest(manifest: Manifest) -> str:
    """Return the text of ``experiment.json``."""
    content = {_KEYS.get(name, name): value for name, value in asdict(manifest).items()}
    return json.dumps(content, indent=1, ensure_ascii=False)


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a folder, or None if there is none that can be read."""
    path = folder / FILE
    try:
        return _parse(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"experiment: expected the description of an experiment in {str(path)!r}, got another ({error!r}); run the "
            "experiment again, which rewrites it."
        ) from None


def _parse(read: Any) -> Manifest | None:
    content = {"limits": {}} | _tuples(read)  # earlier versions had no limits
    if content.keys() != {_KEYS.get(f.name, f.name) for f in fields(Manifest)}:
        return None
    content |= {name: content.pop(key) for name, key in _KEYS.items()}
    content["metrics"] = tuple(Metric(**metric) for metric in content["metrics"])
    content["aggregates"] = tuple(Aggregate(**aggregate) for aggregate in content["aggregates"])
    content["cells"] = tuple(Entry(**cell) for cell in content["cells"])
    if content["published"] is not None:
        published = content["published"]
        published["notes"] = tuple(Note(**note) for note in published["notes"])
        content["published"] = PublishedTable(**published)
    return Manifest(**content)


def _tuples(value: Any) -> Any:
    """Convert lists to tuples, except in configs of runs."""
    if isinstance(value, list):
        return tuple(_tuples(item) for item in value)
    if isinstance(value, Mapping):
        return {key: item if key == "config" else _tuples(item) for key, item in value.items()}
    return value
