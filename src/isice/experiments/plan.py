"""Which cells would run, and an estimate of how long they take."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._checks import first_of, suggestion
from .._specs import spec_name
from ..records import Record
from .axes import Axis
from .job_configs import finished_folders
from .loader import Cell, Experiment


@dataclass(frozen=True)
class Step:
    """A cell to compute in about ``seconds``, or to skip because of the run in ``finished``."""

    cell: Cell
    finished: Path | None
    seconds: float | None
    images: int | None = None  # for training, if measured
    gib: float | None = None  # of GPU memory, if measured


def select_cells(
    experiment: Experiment,
    limits: Iterable[str] = (),
    *,
    shard: str | None = None,
    only: int | None = None,
    published: bool = False,
) -> list[Cell]:
    """Return the cells to run.

    Args:
        experiment: The experiment.
        limits: ``axis=value`` or ``axis=value,value``: only these values of that axis.
        shard: ``"i/n"``: every n-th cell, from the i-th on, counted from 0.
        only: The index of a single cell among those within the limits, counted from 0.
        published: Leave out the training runs whose table has no published number for them.

    Example:
        >>> from isice.experiments.loader import load_experiment
        >>> [cell.label for cell in select_cells(load_experiment("table4"), ["dataset=cub"])]
        ['isice cub200', 'isice_mlp cub200']
    """
    wanted = read_limits(experiment, limits)
    cells = [cell for cell in experiment.cells() if all(cell.at[axis] in names for axis, names in wanted.items())]
    if published:
        cells = [cell for cell in cells if has_published_number(experiment, cell)]
    if only is not None:
        if not 0 <= only < len(cells):
            raise ValueError(f"run: expected --only-cell from 0 to {len(cells) - 1}, got {only}.")
        return [cells[only]]
    if shard is not None:
        index, count = _read_shard(shard)
        return cells[index::count]
    return cells


def has_published_number(experiment: Experiment, cell: Cell) -> bool:
    """Return whether the table has a number for a training run; always true without a table."""
    table = experiment.published
    if table is None or experiment.kind != "train":
        return True
    of = {(aggregate.axis, aggregate.name): aggregate.of for aggregate in experiment.aggregates}
    for key, _ in table.numbers:
        place = {axis: value for axis, value in zip(table.axes, key, strict=True) if axis in cell.at}
        if all(cell.at[axis] in of.get((axis, value), (value,)) for axis, value in place.items()):
            return True
    return False


def read_limits(experiment: Experiment, limits: Iterable[str]) -> dict[str, set[str]]:
    """Parse ``["dataset=cub,cars"]`` to ``{"dataset": {"cub200", "cars"}}``."""
    axes = {axis.name: axis for axis in experiment.axes}
    # Accept the last word of a setting as a short name: pooling for model.pooling.
    axes |= {axis.name.rsplit(".", 1)[-1]: axis for axis in experiment.axes}
    wanted: dict[str, set[str]] = {}
    for limit in limits:
        name, equals, words = limit.partition("=")
        if not equals or name.strip() not in axes:
            raise unknown_axis(limit, experiment.axes)
        axis = axes[name.strip()]
        wanted.setdefault(axis.name, set()).update(axis.find(word).name for word in words.split(","))
    return wanted


def unknown_axis(limit: str, axes: Iterable[Axis]) -> ValueError:
    """Return the error for a limit without a known axis, with a suggestion."""
    known = {axis.name: [value.name for value in axis.values] for axis in axes}
    listed = "; ".join(f"{name} ({first_of(values, 6)})" for name, values in known.items())
    name, equals, words = limit.partition("=")
    words = words if equals else limit.strip()  # a value without its axis
    word = words.split(",")[0].strip().lower()
    owners = [axis for axis, values in known.items() if word and word in (value.lower() for value in values)]
    hint = f" Did you mean {owners[0]}={words}?" if owners else suggestion(name.strip(), known)
    expected = f"with an axis of {listed}" if known else "for an experiment with axes, and this one has none"
    return ValueError(f"experiment: expected --limit axis=value {expected}, got {limit!r}.{hint}")


def _read_shard(text: str) -> tuple[int, int]:
    index, slash, count = text.partition("/")
    if not (slash and index.isdigit() and count.isdigit() and int(index) < int(count)):
        raise ValueError(f"run: expected --shard i/n with 0 ≤ i < n, such as 0/4, got {text!r}.")
    return int(index), int(count)


def plan(cells: Iterable[Cell], records: list[Record], *, force: bool = False) -> list[Step]:
    """Return what would happen to every cell, with times estimated from ``records``."""
    finished = {} if force else finished_folders(records)
    done: dict[str, list[Record]] = {}
    for record in records:
        if record["status"] == "finished":
            done.setdefault(record.get("kind", "train"), []).append(record)
    return [Step(c, c.find_finished(finished), _estimate(c.config, c.kind, done.get(c.kind, []))) for c in cells]


def _estimate(config: Any, kind: str, done: list[Record]) -> float | None:
    """Estimate seconds from runs with the same network and data, preferably the same head."""
    if kind != "train":
        times = [record["seconds"] for record in done if "seconds" in record]
        return sum(times) / len(times) if times else None
    wanted = (config.model.backbone, config.data.name, config.data.image_size)
    epochs = config.optim.epochs + config.optim.head_epochs
    alike = []
    for record in done:
        model, data = record["config"]["model"], record["config"]["data"]
        if (model.get("backbone"), data.get("name"), data.get("image_size")) == wanted and record.get("epochs"):
            alike.append(record)
    head = spec_name(config.model.pooling)
    same = [record for record in alike if spec_name(record["config"]["model"]["pooling"]) == head]
    rates = [sum(row["seconds"] for row in record["epochs"]) / len(record["epochs"]) for record in same or alike]
    return epochs * sum(rates) / len(rates) if rates else None


def summary(steps: list[Step]) -> str:
    """Return one line with the number of runs, the number skipped and the estimated time."""
    waiting = [step for step in steps if step.finished is None]
    known = [step.seconds for step in waiting if step.seconds is not None]
    line = f"{len(waiting)} to run, {len(steps) - len(waiting)} finished"
    if not waiting:
        return line
    if not known:
        return f"{line}; time unknown: no record of a similar run"
    rest = "" if len(known) == len(waiting) else f" for {len(known)} of them, unknown for the others"
    return f"{line}; about {format_duration(sum(known))} on one device{rest}"


def format_duration(seconds: float | None) -> str:
    """Format seconds.

    Example:
        >>> [format_duration(seconds) for seconds in (45, 5400, 200000, None)]
        ['45 s', '1.5 h', '2.3 days', 'unknown']
    """
    if seconds is None:
        return "unknown"
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 1.5 * size or (unit == "h" and seconds >= size):
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
