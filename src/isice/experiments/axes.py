"""The axes of a grid: named values, each with its settings.

::

    [axes.dataset]
    cub200 = { label = "Birds", data.name = "cub200" }
    dtd = { label = "DTD", data.name = "dtd", repeat = { data.partition = [1, 2, 3] } }  # averaged

    [axes.sparsity]                          # options of the pooling in model.pooling
    "0.1" = { label = "λ = 0.1", pooling.sparsity = 0.1 }

    [grid]                                   # short form: an axis over one setting
    model.pooling = ["gap", "isice"]
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .._checks import suggestion
from .._tables import flatten


@dataclass(frozen=True)
class Value:
    """One value of an axis."""

    name: str  # in files, folders and --limit
    label: str  # in reports
    settings: dict[str, Any]  # config fields ("data.name") and their values
    recipe: str | None = None  # instead of the experiment's
    repeat: dict[str, tuple[Any, ...]] = field(default_factory=dict)  # averaged over, such as the splits of a dataset
    kind: str | None = None  # of job, instead of the experiment's; its config must have the same fields
    pooling: dict[str, Any] = field(default_factory=dict)  # options added to the spec in model.pooling


@dataclass(frozen=True)
class Axis:
    """One dimension of a grid."""

    name: str
    values: tuple[Value, ...]

    def find(self, word: str) -> Value:
        """Return the value with this name, label or unique prefix of a name, ignoring case."""
        wanted = word.strip().lower()
        exact = [value for value in self.values if wanted in (value.name.lower(), value.label.lower())]
        close = exact or [value for value in self.values if value.name.lower().startswith(wanted)]
        if len(close) != 1:
            names = [value.name for value in self.values]
            raise ValueError(
                f"experiment: expected {self.name} to be one of {', '.join(names)}, got {word!r}."
                f"{suggestion(wanted, names)}"
            )
        return close[0]


def read_axes(axes: Mapping[str, Any], grid: Mapping[str, Any]) -> tuple[Axis, ...]:
    """Read the tables ``[axes]`` and ``[grid]`` of a file."""
    named = [_read_axis(name, table) for name, table in axes.items()]
    plain = [
        Axis(key, tuple(Value(str(value), str(value), {key: value}) for value in values))
        for key, values in flatten_lists(grid, "grid").items()
    ]
    if any("seed" in value.settings for axis in [*named, *plain] for value in axis.values):
        raise ValueError("experiment: expected seeds under [experiment], got grid.seed; write seeds = [0, 1, 2] there.")
    return (*named, *plain)


def _read_axis(name: str, table: Any) -> Axis:
    if not isinstance(table, Mapping) or not table or not all(isinstance(value, Mapping) for value in table.values()):
        raise TypeError(f"experiment: expected axes.{name} to be a table of values with settings, got {table!r}.")
    if name == "metric":
        raise ValueError(
            "experiment: expected an axis with another name than 'metric', which is reserved for [metrics]."
        )
    return Axis(name, tuple(_read_value(key, dict(content)) for key, content in table.items()))


def _read_value(name: str, content: dict[str, Any]) -> Value:
    label, recipe, repeat = content.pop("label", name), content.pop("recipe", None), content.pop("repeat", {})
    kind = content.pop("kind", None)
    # For other kinds of job "pooling" is a setting, a string.
    pooling = content.pop("pooling") if isinstance(content.get("pooling"), Mapping) else {}
    return Value(name, label, flatten(content), recipe, flatten_lists(repeat, f"{name}.repeat"), kind, pooling)


def flatten_lists(table: Mapping[str, Any], where: str) -> dict[str, tuple[Any, ...]]:
    """Return dotted keys → values; every value must be a list that is not empty."""
    flat = flatten(table)
    for key, values in flat.items():
        if not isinstance(values, list) or not values:
            raise TypeError(f"experiment: expected {where}.{key} to be a list of values, got {values!r}.")
    return {key: tuple(values) for key, values in flat.items()}


def without_settings(axes: Iterable[Axis], fixed: set[str]) -> tuple[Axis, ...]:
    """Return the axes that vary settings other than ``fixed``, without repeats over ``fixed``."""
    kept = []
    for axis in axes:
        if any(value.recipe or value.pooling or value.settings.keys() - fixed for value in axis.values):
            values = (replace(v, repeat={k: r for k, r in v.repeat.items() if k not in fixed}) for v in axis.values)
            kept.append(Axis(axis.name, tuple(values)))
    return tuple(kept)
