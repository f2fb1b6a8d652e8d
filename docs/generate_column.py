"""Table 1's column VGG-16, Birds: the page of its records, and a table of docs/accuracy.md."""

from pathlib import Path
from typing import Any

from benchmarks.pages import MISSING, RESULTS, table

from isice.experiments.loader import load_experiment
from isice.experiments.manifest import describe
from isice.experiments.published_numbers import value_of
from isice.metrics import mean_std, wilson_interval
from isice.records import Record, find_records
from isice.report.measured_numbers import MeasuredNumbers

COLUMN = RESULTS / "table1_vgg16_cub200"
PLACE = {"backbone": "vgg16", "dataset": "cub200"}
# Recipe of the paper's text, in the folder itself, and recipe of the authors'
# script, in a sub-folder.
PUBLISHED = "published_cnn"
NONE = "No run of this column is finished."

HEADER = """# Table 1, VGG-16, Birds: our runs beside the printed column

CUB-200-2011 at 448 px, ImageNet weights, 256 channels. Each folder holds the resolved config, the metrics by
epoch, the record and the predictions of a finished run, without weights and images. This page is written by
`python docs/build.py column`; `isice report` on this folder prints the same numbers.
"""
COMMANDS = """## Commands

```
isice run table1 --limit backbone=vgg16 --limit dataset=cub200 --data-root data --weights-root weights \\
    --out runs/column --set optim.epochs=32 --set data.cache=gpu --set precision=bf16 --set channels_last=true \\
    --set compile=true
isice train --recipe published_cnn --model vgg16 --pooling isice --data cub200 --set data.root=data/cub200 \\
    --weights-root weights --set data.cache=gpu --set precision=bf16 --set channels_last=true
```

Runs of 17 epochs had `optim.epochs=17`.

Finished runs are skipped. Copy `experiment.json` and every `record.json`, `config.toml`, `metrics.jsonl` and
`evaluation.json` from `runs/column` to this folder, and back to `runs/column` on the next machine.
"""


def pages() -> dict[Path, str]:
    """Return the records' page."""
    records = finished_records()
    parts = [HEADER.rstrip(), paper_recipe(records), published_recipe(records), COMMANDS]
    return {COLUMN / "README.md": "\n\n".join(part for part in parts if part)}


def finished_records() -> list[Record]:
    """Return the finished runs of the column."""
    return [record for record in find_records(COLUMN) if record["status"] == "finished"]


def paper_recipe(records: list[Record]) -> str:
    """Return the column of the methods with a finished run of ``paper_cnn``, and notes on them."""
    rows, used, methods = [], list[Record](), _by_method(records)
    for method, paper, found in methods:
        if found:
            rows.append((method, paper, *_measured(paper, found)))
            used += found
    if not rows:
        return NONE
    header = ["method", "printed, %", "ours, %", "difference", "95 % interval", "training accuracy, %", "epochs"]
    return "\n\n".join([table(header, rows), _notes(used, len(methods) - len(rows))])


def published_recipe(records: list[Record]) -> str:
    """Return the runs of the recipe of the authors' script, empty without any."""
    mine = [record for record in records if Path(record["folder"]).parent.name == PUBLISHED]
    printed = {method: paper for method, paper, _ in _by_method([], labels=False)}
    rows = []
    for pooling in dict.fromkeys(record["config"]["model"]["pooling"] for record in mine):
        found = [record for record in mine if record["config"]["model"]["pooling"] == pooling]
        chosen = found[0]["reported_epoch"]
        paper = printed.get(pooling, MISSING)
        rows.append((f"`{pooling}`", paper, *_measured(paper, found), str(chosen["epoch"]), chosen["chosen_on"]))
    if not rows:
        return ""
    header = ["pooling", "printed, %", "ours, %", "difference", "95 % interval", "training accuracy, %", "epochs"]
    return f"## Recipe {PUBLISHED}\n\n" + table([*header, "epoch", "epoch chosen on"], rows)


def _by_method(records: list[Record], *, labels: bool = True) -> list[tuple[str, str, list[Record]]]:
    """Return label or name, printed number and records of every method, in the table's order."""
    experiment = load_experiment("table1")
    epochs = {record["config"]["optim"]["epochs"] for record in records}
    limits = {axis: (value,) for axis, value in PLACE.items()}
    settings = [[f"optim.epochs={count}"] for count in sorted(epochs)] or [[]]
    measured = [MeasuredNumbers(describe(experiment.with_settings(s), limits=limits), records) for s in settings]
    if experiment.printed is None:
        raise ValueError("column: expected published numbers in table1, got none.")
    numbers, rows = dict(experiment.printed.numbers), []
    method_axis = next(axis for axis in experiment.axes if axis.name == "method")
    for value in method_axis.values:
        place = PLACE | {"method": value.name}
        paper = numbers.get(tuple(place[axis] for axis in experiment.printed.axes), MISSING)
        own = [record for one in measured for record in one.records(place)]
        rows.append((value.label if labels else value.name, paper, own))
    return rows


def _measured(paper: str, records: list[Record]) -> tuple[str, ...]:
    accuracy = mean_std([100 * record["accuracy"]["test"] for record in records])
    low, high = wilson_interval(accuracy.mean / 100, records[0]["images"]["test"])
    spread = "" if accuracy.n == 1 else f" ± {accuracy.std:.1f} ({accuracy.n} seeds)"
    difference = MISSING if paper == MISSING else f"{accuracy.mean - value_of(paper):+.1f}".replace("-", "−")
    last = [record["epochs"][-1] for record in records]
    return (
        f"{accuracy.mean:.1f}{spread}",
        difference,
        f"{100 * low:.1f} – {100 * high:.1f}",
        f"{100 * mean_std([row['train_accuracy'] for row in last]).mean:.1f}",
        ", ".join(_distinct(row["epoch"] for row in last)),
    )


def _notes(records: list[Record], missing: int) -> str:
    facts: list[Any] = [f"{missing} methods of the column are missing."] if missing else []
    facts += [f"Schedule: {text}." for text in _distinct(record.get("schedule") for record in records)]
    names = _distinct(record["hardware"].get("gpu") or record["hardware"].get("cpu") for record in records)
    precisions = _distinct(record["config"]["precision"] for record in records)
    facts.append(f"{', '.join(names)}; precision {', '.join(precisions)}; the last epoch is reported.")
    outside = [sum(one.values()) for record in records if (one := record.get("seconds_outside_epochs"))]
    if outside:
        facts.append(f"Outside its epochs a run took {min(outside):.0f} to {max(outside):.0f} s.")
    return "\n".join(f"- {fact}" for fact in facts)


def _distinct(values: Any) -> list[str]:
    return list(dict.fromkeys(str(value) for value in values if value))
