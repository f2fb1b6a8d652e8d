"""Records → rows: one row per configuration, mean ± standard deviation over its seeds, "—" where there is no record."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table as RichTable

from ..experiments.axes import flatten
from ..experiments.job_configs import family_of_record
from ..experiments.manifest import FILE as EXPERIMENT
from ..experiments.manifest import Manifest, read_manifest
from ..metrics import mean_std
from ..records import Record, find_records
from .latex import to_latex

MISSING = "—"
# Settings that tell runs of one configuration apart, or say where they computed: never a column.
_NOT_AXES = ("seed", "device", "threads", "data.root", "data.workers")
AXIS_TITLES = {"model.pooling": "head", "model.backbone": "backbone", "data.name": "data"}


@dataclass(frozen=True)
class Group:
    """The records of one configuration, over its seeds; ``expected`` says how many there should be."""

    labels: tuple[str, ...]
    records: list[Record]
    expected: int

    @property
    def label(self) -> str:
        """The configuration in words, as short as the experiment allows."""
        return " ".join(self.labels)

    @property
    def finished(self) -> list[Record]:
        """The records that have a result."""
        return [record for record in self.records if record["status"] == "finished"]


@dataclass(frozen=True)
class Results:
    """Everything a report is made of; ``apart`` are folders of experiments in its folder, which it does not show."""

    title: str
    description: str
    axes: tuple[str, ...]
    groups: list[Group]
    manifest: Manifest | None = None
    apart: tuple[str, ...] = ()

    @property
    def records(self) -> list[Record]:
        """All records, in the order of the groups."""
        return [record for group in self.groups for record in group.records]


@dataclass(frozen=True)
class Table:
    """A table of text; the first ``n_text`` columns are words, the others numbers."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    n_text: int

    def to_markdown(self) -> str:
        """The table in GitHub's markdown."""
        rule = ["---"] * self.n_text + ["---:"] * (len(self.columns) - self.n_text)
        lines = [self.columns, rule, *self.rows]
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"

    def to_latex(self, caption: str = "") -> str:
        """The table for LaTeX, with the rules of ``booktabs``."""
        return to_latex(self.columns, self.rows, self.n_text, caption)

    def to_rich(self) -> RichTable:
        """The table for a terminal."""
        table = RichTable(header_style="bold", box=SIMPLE_HEAD)
        for index, column in enumerate(self.columns):
            table.add_column(column, justify="left" if index < self.n_text else "right", overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        return table


def load_results(folder: str | Path, manifest: Manifest | None = None) -> Results:
    """Reads the records of a folder of runs, or of one run.

    Args:
        folder: The folder.
        manifest: The experiment; by default what its own ``experiment.json`` says. Without one, the records found are
            all there is.
    """
    folder = Path(folder)
    manifest = manifest or (read_manifest(folder) if folder.is_dir() else None)
    if manifest is None or not manifest.cells:
        return _loose_results(folder, manifest)
    return _planned_results(manifest, find_records(folder / manifest.pool))


def _planned_results(manifest: Manifest, records: list[Record]) -> Results:
    """One group per place of the experiment; a run that it does not list is left out, another seed is not."""
    by_family: dict[str | None, list[Record]] = {}
    for record in records:
        by_family.setdefault(family_of_record(record), []).append(record)
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


def _loose_results(folder: Path, manifest: Manifest | None) -> Results:
    """One group per configuration found, named by the settings in which they differ."""
    if not folder.is_dir():
        raise FileNotFoundError(f"report: expected a folder of runs, got {str(folder)!r}, which does not exist.")
    records, apart = _without_experiments(folder, find_records(folder))
    configs = {record["hash"]: flatten(record["config"]) for record in records}
    axes = _axes(list(configs.values()))
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(str(configs[record["hash"]].get(axis)) for axis in axes), []).append(record)
    found = [Group(labels, members, len(members)) for labels, members in groups.items()]
    return Results(folder.resolve().name, "", tuple(axes), found, manifest, apart)


def _without_experiments(folder: Path, records: list[Record]) -> tuple[list[Record], tuple[str, ...]]:
    """The records that belong to no experiment in a sub-folder, and those sub-folders: each has a report of its own."""
    apart = sorted(path.parent for path in folder.rglob(EXPERIMENT) if path.parent != folder)
    own = [record for record in records if not any(Path(record["folder"]).is_relative_to(other) for other in apart)]
    kinds = sorted({record.get("kind", "train") for record in own})
    if not records:
        raise FileNotFoundError(f"report: expected record.json files under {str(folder)!r}, got none; run first.")
    if not own:
        listed = ", ".join(str(path) for path in apart)
        raise ValueError(
            f"report: expected the runs of one experiment, got {str(folder)!r}, which holds {listed}; "
            f"name one of them: isice report {apart[0]}."
        )
    if len(kinds) > 1:
        raise ValueError(
            f"report: expected runs of one kind in {str(folder)!r}, got {' and '.join(kinds)}; name a folder inside it."
        )
    return own, tuple(map(str, apart))


def result_table(results: Results) -> Table:
    """Test and validation accuracy, training time and parameters of every configuration that is not a measurement.

    Beside a printed table, which shows what is missing, it has only configurations with records.
    """
    titles = [AXIS_TITLES.get(axis, axis) for axis in results.axes]
    numbers = ("test %", "val %", "seeds", "training s", "parameters")
    compared = results.manifest is not None and results.manifest.printed is not None
    groups = [group for group in results.groups if group.records or not compared]
    rows = [(*group.labels, *_numbers(group)) for group in groups]
    return Table((*titles, *numbers), rows, n_text=len(titles))


def _numbers(group: Group) -> tuple[str, ...]:
    done = group.finished
    seeds = f"{len(done)}" if len(done) >= group.expected else f"{len(done)} of {group.expected}"
    if not done:
        failed = "failed" if group.records else MISSING
        return (failed, MISSING, seeds, MISSING, MISSING)
    return (
        plus_minus([100 * record["accuracy"]["test"] for record in done], 1),
        plus_minus([100 * record["accuracy"]["val"] for record in done if "val" in record["accuracy"]], 1),
        seeds,
        plus_minus([sum(row["seconds"] for row in record["epochs"]) for record in done], 1),
        f"{done[-1]['parameters']['total']:,}",
    )


def plus_minus(values: Sequence[float], digits: int) -> str:
    """``mean ± std`` of several values, the bare value of one, "—" of none.

    Example:
        >>> plus_minus([1.0, 2.0, 3.0], 1), plus_minus([2.0], 1), plus_minus([], 1)
        ('2.0 ± 1.0', '2.0', '—')
    """
    if not values:
        return MISSING
    mean, std, _ = mean_std(values)
    return f"{mean:.{digits}f}" if math.isnan(std) else f"{mean:.{digits}f} ± {std:.{digits}f}"


def _axes(configs: list[dict[str, Any]]) -> list[str]:
    """The settings that differ between configurations; the head, if none does."""
    keys = dict.fromkeys(key for config in configs for key in config)
    varying = [key for key in keys if len({str(config.get(key)) for config in configs}) > 1 and key not in _NOT_AXES]
    return varying or ["model.pooling"]
