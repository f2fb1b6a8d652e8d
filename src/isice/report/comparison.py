"""Paper, ours, difference: what was printed beside what the records say. Neither is ever computed from the other."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..experiments.job_configs import family_of_record
from ..experiments.manifest import Manifest
from ..experiments.published_numbers import METRIC, Aggregate, Metric, PublishedTable, value_of
from ..metrics import mean_std
from ..records import Record, evaluation_on_test
from .tables import MISSING, Table

Place = dict[str, str]
Limits = Mapping[str, Collection[str]]


@dataclass(frozen=True)
class Ours:
    """A number of ours: mean and standard deviation (nan for one run) over ``runs`` runs."""

    mean: float
    std: float
    runs: int


@dataclass(frozen=True)
class Item:
    """One place of a table: the printed text and our number, each of which may be missing."""

    metric: Metric
    paper: str | None
    ours: Ours | None
    failed: bool = False
    marks: str = ""

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.paper is None or self.ours is None else self.ours.mean - value_of(self.paper)

    @property
    def better(self) -> bool | None:
        """Whether ours is better than the paper's; None if that cannot be said."""
        difference = self.difference
        return (
            None if not difference or not self.metric.better else (difference > 0) == (self.metric.better == "higher")
        )

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show."""
        return self.paper is None and self.ours is None and not self.failed

    @property
    def paper_text(self) -> str:
        """The number as printed, with the marks of its notes."""
        return MISSING if self.paper is None else f"{self.paper}{self.marks}"

    @property
    def ours_text(self) -> str:
        """``mean ± std (runs)``."""
        if self.ours is None:
            return "failed" if self.failed else MISSING
        digits, ours = self.metric.digits, self.ours
        spread = "" if math.isnan(ours.std) else f" ± {ours.std:,.{digits}f} ({ours.runs})"
        return f"{ours.mean:,.{digits}f}{spread}"

    @property
    def difference_text(self) -> str:
        """The difference with its sign."""
        if self.difference is None:
            return MISSING
        return f"{self.difference:+,.{self.metric.digits}f}".replace("-", "−")


@dataclass(frozen=True)
class Comparison:
    """A table of places; with ``printed`` every place has a paper's side."""

    title: str
    row_titles: tuple[str, ...]
    columns: tuple[str, ...]
    rows: list[tuple[tuple[str, ...], list[Item]]]
    notes: list[str]
    printed: bool

    def to_table(self) -> Table:
        """The table as text: ``paper / ours / difference`` in every place."""
        rows = [(*labels, *(self._text(item) for item in items)) for labels, items in self.rows]
        return Table((*self.row_titles, *self.columns), rows, n_text=len(self.row_titles))

    def _text(self, item: Item) -> str:
        if not self.printed:
            return item.ours_text
        if item.empty:
            return MISSING
        return f"{item.paper_text} / {item.ours_text} / {item.difference_text}"

    @property
    def found(self) -> tuple[int, int]:
        """How many places have a number of ours, and how many there are."""
        items = [item for _, row in self.rows for item in row if not (self.printed and item.empty)]
        return sum(item.ours is not None for item in items), len(items)


def compare(manifest: Manifest, records: Iterable[Record], limits: Limits | None = None) -> list[Comparison]:
    """The tables of an experiment: the printed one, or without one a table of ours for every metric."""
    finder = Finder(manifest, list(records))
    printed = manifest.printed
    if printed is not None and set(printed.axes) - {METRIC} <= manifest.axes.keys():
        return [_printed_table(manifest, printed, finder, limits or {})]
    tables = _own_tables(manifest, finder, limits or {})
    return [table for table in tables if table.found[0]] or tables[:1]


class Finder:
    """Finds our numbers by place and metric."""

    def __init__(self, manifest: Manifest, records: list[Record]) -> None:
        self.manifest = manifest
        self.by_family: dict[str, list[Record]] = {}
        for record in records:
            family = family_of_record(record)
            if family is not None:
                self.by_family.setdefault(family, []).append(record)
        self.families: dict[tuple[tuple[str, str], ...], dict[str, None]] = {}
        for cell in manifest.cells:
            self.families.setdefault(tuple(sorted(cell.at.items())), {})[cell.family] = None

    def records(self, place: Place) -> list[Record]:
        """The records of a complete place."""
        key = tuple(sorted((axis, value) for axis, value in place.items() if axis != METRIC))
        return [record for family in self.families.get(key, ()) for record in self.by_family.get(family, ())]

    def failed(self, place: Place) -> bool:
        """Whether nothing but failures is there."""
        states = [record["status"] for record in self.records(place)]
        return "failed" in states and "finished" not in states

    def ours(self, place: Place, metric: Metric) -> Ours | None:
        """Our number, through aggregates and ratios."""
        for aggregate in self.manifest.aggregates:
            if place.get(aggregate.axis) == aggregate.name:
                return self._aggregate(place, metric, aggregate)
        if metric.of:
            of = next(other for other in self.manifest.metrics if other.name == metric.of)
            own, base = self.ours(place, of), self.ours(place | dict(metric.relative_to), of)
            return None if own is None or base is None else Ours(own.mean / base.mean, math.nan, own.runs)
        found = [number_of(r, metric.key) for r in self.records(place) if r["status"] == "finished"]
        values = [metric.scale * value for value in found if value is not None]
        return Ours(*mean_std(values)) if values else None

    def _aggregate(self, place: Place, metric: Metric, aggregate: Aggregate) -> Ours | None:
        parts = [self.ours(place | {aggregate.axis: value}, metric) for value in aggregate.of]
        found = [part for part in parts if part is not None]
        if len(found) < len(parts):
            return None
        mean, std, _ = mean_std([part.mean for part in found])
        return Ours(mean if aggregate.how == "mean" else std, math.nan, min(part.runs for part in found))


def number_of(record: Record, key: str) -> float | None:
    """The number at a path of a record; ``evaluation.…`` is a path in the run's evaluation of the test part."""
    *tables, name = key.split(".")
    value: Any = record
    if tables[:1] == ["evaluation"]:
        value, tables = evaluation_on_test(record), tables[1:]
    for table in tables:
        value = (value or {}).get(table)
    found = (value or {}).get(name)
    return None if found is None else float(found)


def _printed_table(manifest: Manifest, printed: PublishedTable, finder: Finder, limits: Limits) -> Comparison:
    metrics = {metric.name: metric for metric in manifest.metrics}
    columns = list(printed.column_keys)
    if printed.columns == (METRIC,):
        unprinted = [metric for metric in manifest.metrics if (metric.name,) not in columns]
        columns += [(m.name,) for m in unprinted if any(finder.ours(cell.at, m) for cell in manifest.cells)]
    columns = [key for key in columns if _within(printed.columns, key, limits)]
    notes: dict[str, str] = {}
    rows = []
    for row in printed.row_keys:
        if _within(printed.rows, row, limits):
            places = [dict(zip(printed.axes, (*row, *column), strict=True)) for column in columns]
            items = [_item(place, metrics, printed, finder, notes) for place in places]
            rows.append((_labels(manifest, printed.rows, row), items))
    return Comparison(
        title=f"{printed.source}: paper / ours (mean ± std, runs) / difference",
        row_titles=printed.rows,
        columns=tuple(", ".join(_labels(manifest, printed.columns, column)) for column in columns),
        rows=rows,
        notes=[f"{mark} {text}" for text, mark in notes.items()],
        printed=True,
    )


def _item(
    place: Place, metrics: Mapping[str, Metric], printed: PublishedTable, finder: Finder, notes: dict[str, str]
) -> Item:
    metric = metrics[place[METRIC]] if METRIC in place else next(iter(metrics.values()))
    paper = paper_number(place, metric, printed)
    concerning = [note.text for note in printed.notes if paper is not None and note.concerns(place)]
    for text in concerning:
        notes.setdefault(text, "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐ"[len(notes) % 13])
    marks = "".join(notes[text] for text in concerning)
    if any(a.how == "std" and place.get(a.axis) == a.name for a in finder.manifest.aggregates):
        metric = replace(metric, better="")  # a spread is neither good nor bad
    return Item(metric, paper, finder.ours(place, metric), finder.failed(place), marks)


def paper_number(place: Place, metric: Metric, printed: PublishedTable) -> str | None:
    """The printed text; of a ratio, what follows from the printed numbers."""
    numbers = dict(printed.numbers)
    if not metric.of:
        return numbers.get(tuple(place[axis] for axis in printed.axes))
    own = numbers.get(tuple((place | {METRIC: metric.of})[axis] for axis in printed.axes))
    other = place | {METRIC: metric.of} | dict(metric.relative_to)
    base = numbers.get(tuple(other[axis] for axis in printed.axes))
    return None if own is None or base is None else f"{value_of(own) / value_of(base):.{metric.digits}f}"


def _own_tables(manifest: Manifest, finder: Finder, limits: Limits) -> list[Comparison]:
    """Without printed numbers: the last axis across, the others down; a single axis down and the metrics across."""
    axes = [axis for axis in manifest.axes if axis != METRIC]
    if len(axes) < 2:
        rows = [(cell.at, tuple(cell.at[axis] for axis in axes)) for cell in manifest.cells]
        unique = {key: at for at, key in rows if _within(axes, key, limits)}
        body = [
            (_labels(manifest, axes, key), [_own(at, metric, finder) for metric in manifest.metrics])
            for key, at in unique.items()
        ]
        labels = tuple(metric.label for metric in manifest.metrics)
        return [Comparison(_OURS, tuple(axes), labels, body, [], printed=False)]
    down, across = axes[:-1], axes[-1]
    values = [v for v in manifest.axes[across] if across not in limits or v in limits[across]]
    keys = dict.fromkeys(tuple(cell.at[axis] for axis in down) for cell in manifest.cells)
    kept = [key for key in keys if _within(down, key, limits)]
    tables = []
    for metric in manifest.metrics:
        body = [
            (
                _labels(manifest, down, key),
                [_own(dict(zip(down, key, strict=True)) | {across: value}, metric, finder) for value in values],
            )
            for key in kept
        ]
        columns = tuple(f"{across} {manifest.axes[across][value]}" for value in values)
        tables.append(Comparison(f"{metric.label}: {_OURS}", tuple(down), columns, body, [], printed=False))
    return tables


_OURS = "ours (mean ± std, runs)"


def _own(place: Place, metric: Metric, finder: Finder) -> Item:
    return Item(metric, None, finder.ours(place, metric), finder.failed(place))


def _within(axes: Iterable[str], key: Iterable[str], limits: Limits) -> bool:
    return all(axis not in limits or value in limits[axis] for axis, value in zip(axes, key, strict=True))


def _labels(manifest: Manifest, axes: Iterable[str], key: Iterable[str]) -> tuple[str, ...]:
    return tuple(manifest.axes[axis].get(value, value) for axis, value in zip(axes, key, strict=True))


def chunks(comparison: Comparison, width: int) -> list[Comparison]:
    """The table cut into several that fit a terminal of ``width`` characters."""
    table = comparison.to_table()
    sizes = [max(len(line[i]) for line in [table.columns, *table.rows]) + 3 for i in range(len(table.columns))]
    room = max(width - sum(sizes[: table.n_text]) - 2, 1)
    groups: list[list[int]] = [[]]
    for index, size in enumerate(sizes[table.n_text :]):
        if groups[-1] and sum(sizes[table.n_text + i] for i in groups[-1]) + size > room:
            groups.append([])
        groups[-1].append(index)
    return [
        Comparison(
            comparison.title,
            comparison.row_titles,
            tuple(comparison.columns[i] for i in group),
            [(labels, [items[i] for i in group]) for labels, items in comparison.rows],
            comparison.notes,
            comparison.printed,
        )
        for group in groups
    ]
