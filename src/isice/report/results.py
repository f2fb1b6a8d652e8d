"""The runs of a report: records grouped by configuration."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._tables import flatten
from ..experiments.job_configs import records_by_family
from ..experiments.manifest import FILE as EXPERIMENT_FILE
from ..experiments.manifest import Manifest, read_manifest
from ..metrics import mean_std, wilson_interval
from ..records import Record, evaluation_on_test, find_records

# Results of a training run that a report shows.
_RESULTS = ("images", "parameters", "epochs")
# Settings that never name a group: seeds are averaged over, the others do not change the result.
_NOT_AXES = ("seed", "device", "threads", "data.root", "data.workers")


@dataclass(frozen=True)
class Group:
    """The records of one configuration over its seeds; ``expected`` is their intended number."""

    labels: tuple[str, ...]
    records: list[Record]
    expected: int

    @property
    def label(self) -> str:
        """The name of the configuration."""
        return " ".join(self.labels)

    @property
    def finished(self) -> list[Record]:
        """The records with a result."""
        return [record for record in self.records if record["status"] == "finished"]

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """The evaluations of the finished runs on the test data."""
        return [found for found in map(evaluation_on_test, self.finished) if found is not None]

    @property
    def accuracy_interval(self) -> tuple[float, float, float]:
        """Mean test accuracy in percent, and its 95 % interval for the number of test images."""
        done = [record for record in self.finished if "accuracy" in record]
        mean = mean_std([record["accuracy"]["test"] for record in done]).mean
        low, high = wilson_interval(mean, done[0]["images"]["test"])
        return 100 * mean, 100 * low, 100 * high


@dataclass(frozen=True)
class Results:
    """All runs of a report."""

    title: str  # of the experiment, or the name of the folder
    description: str
    axes: tuple[str, ...]  # what the labels of a group are values of
    groups: list[Group]
    manifest: Manifest | None = None  # the experiment, if the runs belong to one
    apart: tuple[str, ...] = ()  # folders of other experiments inside the folder, which are left out

    @property
    def records(self) -> list[Record]:
        """All records, in the order of the groups."""
        return [record for group in self.groups for record in group.records]


def load_results(folder: str | Path, manifest: Manifest | None = None) -> Results:
    """Read the records of a folder of runs, or of one run.

    The experiment is by default that of the folder's ``experiment.json``, if any.
    """
    folder = Path(folder)
    manifest = manifest or (read_manifest(folder) if folder.is_dir() else None)
    if manifest is None or not manifest.cells:
        return _results_without_plan(folder, manifest)
    return _planned_results(manifest, _complete_records(folder / manifest.runs_root))


def _complete_records(folder: Path) -> list[Record]:
    """Return the records with all fields that a report shows; warn about others."""
    whole = []
    for record in find_records(folder):
        missing = _missing_fields(record)
        if missing:
            where = f"{', '.join(missing)} in {record['folder']!r}"
            warnings.warn(f"report: expected a record with {where}, got none. It is left out.", stacklevel=3)
        else:
            whole.append(record)
    return whole


def _one_per_config(records: list[Record]) -> list[Record]:
    """Return the last record of each config, seed and data folder, finished if there is one.

    A copied folder or a repetition with the same seed is not another seed. The hash does not name
    the data folder, which may hold other images.
    """

    def key(record: Record) -> tuple[str, Any]:
        return record["hash"], flatten(record["config"]).get("data.root")

    last = {key(one): one for one in sorted(records, key=lambda one: one["status"] == "finished")}
    return [record for record in records if last[key(record)] is record]


def _missing_fields(record: Record) -> list[str]:
    names = ("config", "error") if record["status"] == "failed" else ("config",)
    missing = [name for name in names if name not in record]
    if record["status"] == "finished" and record.get("kind", "train") == "train":
        missing += [name for name in _RESULTS if name not in record]
        missing += [] if "test" in record.get("accuracy", {}) else ["accuracy.test"]
    return missing


def _planned_results(manifest: Manifest, records: list[Record]) -> Results:
    """Group by the experiment's cells; skip other configurations, include further seeds."""
    by_family = records_by_family(_one_per_config(records))
    axes = [axis for axis, values in manifest.axes.items() if axis in manifest.cells[0].at and len(values) > 1]
    families: dict[tuple[str, ...], dict[str, None]] = {}
    expected: dict[tuple[str, ...], int] = {}
    for cell in manifest.cells:
        key = tuple(manifest.axes[axis][cell.at[axis]] for axis in axes) or (cell.label.rsplit(" seed ", 1)[0],)
        families.setdefault(key, {})[cell.family] = None
        expected[key] = expected.get(key, 0) + 1
    groups = [
        Group(key, [record for family in own for record in by_family.get(family, ())], expected[key])
        for key, own in families.items()
    ]
    return Results(manifest.title, manifest.description, tuple(axes) or ("model.pooling",), groups, manifest)


def _results_without_plan(folder: Path, manifest: Manifest | None) -> Results:
    """Group by configuration, named by the settings that differ."""
    records, apart = _own_records(folder)
    configs = {record["hash"]: flatten(record["config"]) for record in records}
    axes = _varying_settings(list(configs.values()))
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(str(configs[record["hash"]].get(axis)) for axis in axes), []).append(record)
    found = [Group(labels, members, len(members)) for labels, members in groups.items()]
    return Results(folder.resolve().name, "", tuple(axes), found, manifest, apart)


def _own_records(folder: Path) -> tuple[list[Record], tuple[str, ...]]:
    """Return the records outside nested experiments, and the folders of these experiments."""
    if not folder.is_dir():
        raise FileNotFoundError(f"report: expected a folder of runs, got {str(folder)!r}, which does not exist.")
    records = _complete_records(folder)
    if not records:
        raise FileNotFoundError(f"report: expected record.json files under {str(folder)!r}, got none; run first.")
    apart = sorted(path.parent for path in folder.rglob(EXPERIMENT_FILE) if path.parent != folder)
    own = _one_per_config(
        [record for record in records if not any(Path(record["folder"]).is_relative_to(other) for other in apart)]
    )
    if not own:
        listed = ", ".join(str(path) for path in apart)
        raise ValueError(
            f"report: expected the runs of one experiment, got {str(folder)!r}, which holds {listed}; "
            f"name one of them: isice report {apart[0]}."
        )
    kinds = sorted({record.get("kind", "train") for record in own})
    if len(kinds) > 1:
        raise ValueError(
            f"report: expected runs of one kind in {str(folder)!r}, got {' and '.join(kinds)}; name a folder inside it."
        )
    return own, tuple(map(str, apart))


def _varying_settings(configs: list[dict[str, Any]]) -> list[str]:
    """Return the settings that differ between configurations; the pooling if none does."""
    keys = dict.fromkeys(key for config in configs for key in config)
    varying = [key for key in keys if len({str(config.get(key)) for config in configs}) > 1 and key not in _NOT_AXES]
    return varying or ["model.pooling"]
