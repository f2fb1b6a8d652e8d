"""Records → rows: one row per configuration, mean ± standard deviation over its seeds, "—" where there is no record."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table as RichTable

from ..experiments.records import Record, read_records
from ..metrics import mean_std

MISSING = "—"
# Settings that tell runs of one configuration apart, or say where they computed: never a column.
_NOT_AXES = ("seed", "device", "threads", "data.root", "data.workers")
_AXIS_TITLES = {"model.pooling": "head", "model.backbone": "backbone", "data.name": "data"}


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
    """Everything a report is made of."""

    title: str
    description: str
    axes: tuple[str, ...]
    groups: list[Group]

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

    def to_rich(self) -> RichTable:
        """The table for a terminal."""
        table = RichTable(header_style="bold", box=SIMPLE_HEAD)
        for index, column in enumerate(self.columns):
            table.add_column(column, justify="left" if index < self.n_text else "right")
        for row in self.rows:
            table.add_row(*row)
        return table


def load_results(folder: str | Path) -> Results:
    """Reads the records under ``folder``, and the experiment's own list of runs where it is there."""
    folder = Path(folder)
    records = read_records(folder)
    manifest_path = folder / "experiment.json"
    manifest = json.loads(manifest_path.read_text(encoding="utf-8")) if manifest_path.is_file() else {}
    # A run that the experiment no longer lists is left out; without a list, the records are the list.
    cells = manifest.get("cells") or [{"hash": record["hash"], "config": record["config"]} for record in records]
    by_hash = {record["hash"]: record for record in records}
    configs = {cell["hash"]: flatten(cell["config"]) for cell in cells}
    axes = _axes(list(configs.values()))
    groups: dict[tuple[str, ...], list[str]] = {}
    for key, config in configs.items():
        groups.setdefault(tuple(str(config.get(axis)) for axis in axes), []).append(key)
    return Results(
        title=manifest.get("title", folder.name),
        description=manifest.get("description", ""),
        axes=tuple(axes),
        groups=[
            Group(labels, [by_hash[key] for key in keys if key in by_hash], len(keys))
            for labels, keys in groups.items()
        ],
    )


def result_table(results: Results) -> Table:
    """Test and validation accuracy, training time and parameters of every configuration."""
    titles = [_AXIS_TITLES.get(axis, axis) for axis in results.axes]
    numbers = ("test %", "val %", "seeds", "training s", "parameters")
    rows = [(*group.labels, *_numbers(group)) for group in results.groups]
    return Table((*titles, *numbers), rows, n_text=len(titles))


def _numbers(group: Group) -> tuple[str, ...]:
    done = group.finished
    seeds = f"{len(done)}" if len(done) == group.expected else f"{len(done)} of {group.expected}"
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


def flatten(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys.

    Example:
        >>> flatten({"optim": {"lr": 0.1}, "seed": 0})
        {'optim.lr': 0.1, 'seed': 0}
    """
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _axes(configs: list[dict[str, Any]]) -> list[str]:
    """The settings that differ between configurations; the head, if none does."""
    keys = dict.fromkeys(key for config in configs for key in config)
    varying = [key for key in keys if len({str(config.get(key)) for config in configs}) > 1 and key not in _NOT_AXES]
    return varying or ["model.pooling"]
