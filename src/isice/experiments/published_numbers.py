"""Published numbers of a table, and the metrics of our runs that they are compared with.

::

    [metrics]                                # what is compared; by default test accuracy
    top1 = { label = "top-1 (%)", key = "accuracy.test", scale = 100 }

    [[aggregates]]                           # a value of an axis computed from others
    axis = "dataset"
    name = "average"
    how = "mean"

    [printed]
    source = "Table 3"
    rows = ["method"]
    columns = ["dataset", "backbone"]        # joined by a slash in the header
    table = '''
             cub200/vgg16   cars/vgg16
    isice    86.5           94
    gap      70.4           —
    '''

    [[printed.notes]]
    at = { method = "isice", dataset = "cars" }
    text = "printed without a decimal"       # several values: dataset = ["cars", "cub200"]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .._checks import check_choice
from .axes import Axis

METRIC = "metric"
_MISSING = ("—", "--", "-")


@dataclass(frozen=True)
class Metric:
    """A number in a record and its format."""

    name: str  # in the published table
    label: str  # in reports
    key: str = ""  # path in the record ("accuracy.test"), or "evaluation.…" in evaluation.json
    scale: float = 1.0  # factor on the stored number
    digits: int = 1  # decimals shown
    of: str = ""  # for a ratio, the metric to divide
    relative_to: tuple[tuple[str, str], ...] = ()  # for a ratio, where (axis → value) its denominator is taken
    better: str = ""  # "higher" or "lower", or empty if neither is better


ACCURACY = Metric("accuracy", "test accuracy (%)", "accuracy.test", 100.0, better="higher")


@dataclass(frozen=True)
class Aggregate:
    """A value of an axis that is the mean or standard deviation over its other values."""

    axis: str
    name: str
    label: str
    how: str
    of: tuple[str, ...]


@dataclass(frozen=True)
class Note:
    """A note on all published numbers with the given values (axis → values)."""

    at: tuple[tuple[str, tuple[str, ...]], ...]
    text: str

    def concerns(self, place: Mapping[str, str]) -> bool:
        """Return whether a number at ``place`` has this note."""
        return all(place.get(axis) in values for axis, values in self.at)


@dataclass(frozen=True)
class PublishedTable:
    """A published table. A key has one value per axis; numbers are text, as published."""

    source: str = ""
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    row_keys: tuple[tuple[str, ...], ...] = ()
    column_keys: tuple[tuple[str, ...], ...] = ()
    numbers: tuple[tuple[tuple[str, ...], str], ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of a key."""
        return self.rows + self.columns

    @cached_property
    def by_key(self) -> dict[tuple[str, ...], str]:
        """The numbers by their keys."""
        return dict(self.numbers)


def read_metrics(table: Mapping[str, Any]) -> tuple[Metric, ...]:
    """Read the table ``[metrics]``; without one, return test accuracy."""
    found = []
    for name, content in table.items():
        values = {"label": name, **content}
        if "relative_to" in values:
            values["relative_to"] = tuple(values["relative_to"].items())
        try:
            metric = Metric(name=name, **values)
        except TypeError as error:
            raise ValueError(f"experiment: expected metrics.{name} to have fields of Metric, got {error}.") from None
        check_choice("experiment", f"metrics.{name}.better", metric.better, ("", "higher", "lower"))
        if not metric.key and metric.of not in table:
            raise ValueError(
                f"experiment: expected metrics.{name} to have a 'key' in the record, or 'of' with the name of a metric."
            )
        found.append(metric)
    return tuple(found) or (ACCURACY,)


def read_aggregates(tables: Sequence[Mapping[str, Any]], axes: Sequence[Axis]) -> tuple[Aggregate, ...]:
    """Read the tables ``[[aggregates]]``."""
    by_name = {axis.name: axis for axis in axes}
    found = []
    for table in tables:
        check_choice("experiment", "the axis of an aggregate", table.get("axis"), by_name)
        check_choice("experiment", "how to aggregate", table.get("how", "mean"), ("mean", "std"))
        axis = by_name[table["axis"]]
        of = tuple(axis.find(name).name for name in table.get("of", [value.name for value in axis.values]))
        name = table["name"]
        found.append(Aggregate(axis.name, name, table.get("label", name), table.get("how", "mean"), of))
    return tuple(found)


def read_published(table: Mapping[str, Any], known: Mapping[str, set[str]]) -> PublishedTable | None:
    """Read the table ``[printed]``; every key must consist of known values of its axes."""
    if not table:
        return None
    rows, columns = tuple(table["rows"]), tuple(table["columns"])
    for axis in rows + columns:
        check_choice("experiment", "an axis of [printed]", axis, known)
    lines = [line.split() for line in table["table"].splitlines() if line.strip()]
    column_keys = tuple(tuple(word.split("/")) for word in lines[0])
    numbers, row_keys = [], []
    for words in lines[1:]:
        key, texts = tuple(words[: len(rows)]), words[len(rows) :]
        if len(texts) != len(column_keys):
            raise ValueError(
                f"experiment: expected {len(column_keys)} numbers in the published row {' '.join(key)!r}, "
                f"got {len(texts)}."
            )
        row_keys.append(key)
        for column, text in zip(column_keys, texts, strict=True):
            if text not in _MISSING:
                numbers.append(((*key, *column), _number(text, key)))
    notes = []
    for note in table.get("notes", ()):
        at = {axis: (words,) if isinstance(words, str) else tuple(words) for axis, words in note["at"].items()}
        notes.append(Note(tuple(at.items()), " ".join(note["text"].split())))
    source = table.get("source", "")
    found = PublishedTable(source, rows, columns, tuple(row_keys), column_keys, tuple(numbers), tuple(notes))
    _check_axis_values(found, known)
    return found


def value_of(text: str) -> float:
    """Convert a published number, possibly with commas between thousands.

    Example:
        >>> value_of("11,788")
        11788.0
    """
    return float(text.replace(",", ""))


def _number(text: str, row: tuple[str, ...]) -> str:
    try:
        value_of(text)
    except ValueError:
        raise ValueError(
            f"experiment: expected a number or — in the published row {' '.join(row)!r}, got {text!r}."
        ) from None
    return text


def _check_axis_values(published: PublishedTable, known: Mapping[str, set[str]]) -> None:
    places = [dict(zip(published.rows, key, strict=True)) for key in published.row_keys]
    places += [dict(zip(published.columns, key, strict=True)) for key in published.column_keys]
    places += [{axis: word} for note in published.notes for axis, words in note.at for word in words]
    for place in places:
        for axis, word in place.items():
            check_choice("experiment", f"{axis!r} in [printed]", word, sorted(known.get(axis, set())))
