"""Our numbers for a table, from records: means over runs, aggregates and ratios."""

import math
from typing import Any

from ..experiments.job_configs import records_by_family
from ..experiments.manifest import Manifest
from ..experiments.published_numbers import METRIC, Aggregate, Metric
from ..metrics import MeanStd, mean_std
from ..records import Record, evaluation_on_test

# One value for each axis.
Place = dict[str, str]


class MeasuredNumbers:
    """Our numbers, by place and metric; records of other experiments are ignored."""

    def __init__(self, manifest: Manifest, records: list[Record]) -> None:
        self.manifest = manifest
        self._records = records_by_family(records)
        self._families: dict[tuple[tuple[str, str], ...], dict[str, None]] = {}
        for cell in manifest.cells:
            self._families.setdefault(tuple(sorted(cell.at.items())), {})[cell.family] = None

    def records(self, place: Place) -> list[Record]:
        """Return the records of a place."""
        key = tuple(sorted((axis, value) for axis, value in place.items() if axis != METRIC))
        return [record for family in self._families.get(key, ()) for record in self._records.get(family, ())]

    def failed(self, place: Place) -> bool:
        """Return whether a run failed and none finished."""
        states = [record["status"] for record in self.records(place)]
        return "failed" in states and "finished" not in states

    def find(self, place: Place, metric: Metric) -> MeanStd | None:
        """Return the number of a place, or None without records."""
        for aggregate in self.manifest.aggregates:
            if place.get(aggregate.axis) == aggregate.name:
                return self._aggregate(place, metric, aggregate)
        if metric.of:
            of = next(other for other in self.manifest.metrics if other.name == metric.of)
            own, base = self.find(place, of), self.find(place | dict(metric.relative_to), of)
            return None if own is None or base is None else MeanStd(own.mean / base.mean, math.nan, own.n)
        found = [number_of(r, metric.key) for r in self.records(place) if r["status"] == "finished"]
        values = [metric.scale * value for value in found if value is not None]
        return mean_std(values) if values else None

    def _aggregate(self, place: Place, metric: Metric, aggregate: Aggregate) -> MeanStd | None:
        """Return the mean or deviation over an axis, or None if a value is missing."""
        parts = [self.find(place | {aggregate.axis: value}, metric) for value in aggregate.of]
        found = [part for part in parts if part is not None]
        if len(found) < len(parts):
            return None
        mean, std, _ = mean_std([part.mean for part in found])
        return MeanStd(mean if aggregate.how == "mean" else std, math.nan, min(part.n for part in found))


def number_of(record: Record, key: str) -> float | None:
    """Return the number at a dotted path of a record, or ``evaluation.…`` of its evaluation."""
    *tables, name = key.split(".")
    value: Any = record
    if tables[:1] == ["evaluation"]:
        value, tables = evaluation_on_test(record), tables[1:]
    for table in tables:
        value = (value or {}).get(table)
    found = (value or {}).get(name)
    return None if found is None else float(found)
