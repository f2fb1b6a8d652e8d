"""Tables of an experiment: published numbers, ours and the difference."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from ..experiments.manifest import Manifest
from ..experiments.published_numbers import METRIC, Metric, PublishedTable, value_of
from ..metrics import MeanStd
from ..records import Record
from .measured_numbers import MeasuredNumbers, Place
from .tables import MISSING, NOTE_MARKS, Table

# Axis → the values to show.
Limits = Mapping[str, Collection[str]]
_OURS = "ours (mean ± std, runs)"


@dataclass(frozen=True)
class Item:
    """One entry of a table: the published text and our number, each of which may be missing."""

    metric: Metric
    paper: str | None
    ours: MeanStd | None
    failed: bool = False
    marks: str = ""

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.paper is None or self.ours is None else self.ours.mean - value_of(self.paper)

    @property
    def better(self) -> bool | None:
        """Whether ours is better than the paper's; None if equal or undefined."""
        if not self.difference or not self.metric.better:
            return None
        return (self.difference > 0) == (self.metric.better == "higher")

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show."""
        return self.paper is None and self.ours is None and not self.failed

    @property
    def paper_text(self) -> str:
        """The number as published, with the marks of its notes."""
        return MISSING if self.paper is None else f"{self.paper}{self.marks}"

    @property
    def ours_text(self) -> str:
        """``mean ± std (runs)``."""
        if self.ours is None:
            return "failed" if self.failed else MISSING
        digits, ours = self.metric.digits, self.ours
        spread = "" if math.isnan(ours.std) else f" ± {ours.std:,.{digits}f} ({ours.n})"
        return f"{ours.mean:,.{digits}f}{spread}"

    @property
    def difference_text(self) -> str:
        """The difference with its sign."""
        if self.difference is None:
            return MISSING
        return f"{self.difference:+,.{self.metric.digits}f}".replace("-", "−")


@dataclass(frozen=True)
class Comparison:
    """A table of items; ``published`` says whether they have a published side."""

    title: str
    row_titles: tuple[str, ...]
    columns: tuple[str, ...]
    rows: list[tuple[tuple[str, ...], list[Item]]]
    notes: list[str]
    published: bool

    def to_table(self) -> Table:
        """Return the table as text: ``paper / ours / difference`` in every entry."""
        rows = [(*labels, *(self._text(item) for item in items)) for labels, items in self.rows]
        return Table((*self.row_titles, *self.columns), rows, n_text=len(self.row_titles))

    def _text(self, item: Item) -> str:
        if not self.published:
            return item.ours_text
        return MISSING if item.empty else f"{item.paper_text} / {item.ours_text} / {item.difference_text}"

    @property
    def counts(self) -> tuple[int, int]:
        """The number of entries with a number of ours, and the number of entries."""
        items = [item for _, row in self.rows for item in row if not (self.published and item.empty)]
        return sum(item.ours is not None for item in items), len(items)

    def split_columns(self, width: int) -> list["Comparison"]:
        """Split into tables that fit a terminal of ``width`` characters."""
        table = self.to_table()
        sizes = [max(len(line[i]) for line in [table.columns, *table.rows]) + 3 for i in range(len(table.columns))]
        room = max(width - sum(sizes[: table.n_text]) - 2, 1)
        groups: list[list[int]] = [[]]
        for index, size in enumerate(sizes[table.n_text :]):
            if groups[-1] and sum(sizes[table.n_text + i] for i in groups[-1]) + size > room:
                groups.append([])
            groups[-1].append(index)
        return [
            replace(
                self,
                columns=tuple(self.columns[i] for i in group),
                rows=[(labels, [items[i] for i in group]) for labels, items in self.rows],
            )
            for group in groups
        ]


def compare(manifest: Manifest, records: Iterable[Record], limits: Limits | None = None) -> list[Comparison]:
    """Return the tables of an experiment.

    This is the published one; else, for one axis, a table with the metrics as columns; else one
    table for each metric with records.
    """
    measured, published, limits = MeasuredNumbers(manifest, list(records)), manifest.published, limits or {}
    # Axes can be missing where a setting was overridden.
    if published is not None and set(published.axes) - {METRIC} <= manifest.axes.keys():
        return [_published_table(manifest, published, measured, limits)]
    axes = [axis for axis in manifest.axes if axis != METRIC]
    if len(axes) < 2:
        return [_table_of_all_metrics(manifest, axes, measured, limits)]
    tables = [_table_of_one_metric(manifest, axes, metric, measured, limits) for metric in manifest.metrics]
    return [table for table in tables if table.counts[0]] or tables[:1]


def _published_table(
    manifest: Manifest, published: PublishedTable, measured: MeasuredNumbers, limits: Limits
) -> Comparison:
    columns = list(published.column_keys)
    if published.columns == (METRIC,):
        others = [metric for metric in manifest.metrics if (metric.name,) not in columns]
        columns += [(m.name,) for m in others if any(measured.find(cell.at, m) for cell in manifest.cells)]
    columns = [key for key in columns if _within(published.columns, key, limits)]
    note_marks: dict[str, str] = {}
    rows = []
    for row in published.row_keys:
        if _within(published.rows, row, limits):
            places = [dict(zip(published.axes, (*row, *column), strict=True)) for column in columns]
            items = [_published_item(place, manifest, published, measured, note_marks) for place in places]
            rows.append((_labels(manifest, published.rows, row), items))
    return Comparison(
        title=f"{published.source}: paper / ours (mean ± std, runs) / difference",
        row_titles=published.rows,
        columns=tuple(", ".join(_labels(manifest, published.columns, column)) for column in columns),
        rows=rows,
        notes=[f"{mark} {text}" for text, mark in note_marks.items()],
        published=True,
    )


def _published_item(
    place: Place, manifest: Manifest, published: PublishedTable, measured: MeasuredNumbers, note_marks: dict[str, str]
) -> Item:
    """Return the item of a place, and add the notes on it to ``note_marks`` (text → mark)."""
    metrics = {metric.name: metric for metric in manifest.metrics}
    metric = metrics[place[METRIC]] if METRIC in place else manifest.metrics[0]
    paper = paper_number(place, metric, published)
    texts = [note.text for note in published.notes if paper is not None and note.concerns(place)]
    for text in texts:
        note_marks.setdefault(text, NOTE_MARKS[len(note_marks) % len(NOTE_MARKS)])
    if any(a.how == "std" and place.get(a.axis) == a.name for a in manifest.aggregates):
        metric = replace(metric, better="")  # a larger deviation is neither better nor worse
    own = "".join(note_marks[text] for text in texts)
    return Item(metric, paper, measured.find(place, metric), measured.failed(place), own)


def paper_number(place: Place, metric: Metric, published: PublishedTable) -> str | None:
    """Return the published text of a place; a ratio is computed from published numbers."""
    numbers = published.by_key
    if not metric.of:
        return numbers.get(tuple(place[axis] for axis in published.axes))
    own = place | {METRIC: metric.of}
    texts = [numbers.get(tuple(at[axis] for axis in published.axes)) for at in (own, own | dict(metric.relative_to))]
    if texts[0] is None or texts[1] is None:
        return None
    return f"{value_of(texts[0]) / value_of(texts[1]):.{metric.digits}f}"


def _table_of_all_metrics(manifest: Manifest, axes: list[str], measured: MeasuredNumbers, limits: Limits) -> Comparison:
    """Return our numbers with the values of the only axis as rows and the metrics as columns."""
    places = {tuple(cell.at[axis] for axis in axes): cell.at for cell in manifest.cells}
    rows = [
        (_labels(manifest, axes, key), [_own_item(place, metric, measured) for metric in manifest.metrics])
        for key, place in places.items()
        if _within(axes, key, limits)
    ]
    columns = tuple(metric.label for metric in manifest.metrics)
    return Comparison(_OURS, tuple(axes), columns, rows, [], published=False)


def _table_of_one_metric(
    manifest: Manifest, axes: list[str], metric: Metric, measured: MeasuredNumbers, limits: Limits
) -> Comparison:
    """Return our numbers of one metric with the last axis as columns and the others as rows."""
    down, across = axes[:-1], axes[-1]
    values = [value for value in manifest.axes[across] if _within([across], [value], limits)]
    keys = dict.fromkeys(tuple(cell.at[axis] for axis in down) for cell in manifest.cells)
    rows = [
        (
            _labels(manifest, down, key),
            [_own_item(dict(zip(down, key, strict=True)) | {across: value}, metric, measured) for value in values],
        )
        for key in keys
        if _within(down, key, limits)
    ]
    columns = tuple(f"{across} {manifest.axes[across][value]}" for value in values)
    return Comparison(f"{metric.label}: {_OURS}", tuple(down), columns, rows, [], published=False)


def _own_item(place: Place, metric: Metric, measured: MeasuredNumbers) -> Item:
    return Item(metric, None, measured.find(place, metric), measured.failed(place))


def _within(axes: Iterable[str], key: Iterable[str], limits: Limits) -> bool:
    return all(axis not in limits or value in limits[axis] for axis, value in zip(axes, key, strict=True))


def _labels(manifest: Manifest, axes: Iterable[str], key: Iterable[str]) -> tuple[str, ...]:
    return tuple(manifest.axes[axis].get(value, value) for axis, value in zip(axes, key, strict=True))
