"""Table 1's column VGG-16, Birds: the page of its records, and a table of docs/accuracy.md."""

import datetime
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.pages import MISSING, RESULTS, table

from isice.experiments.job_configs import records_by_family
from isice.experiments.loader import load_experiment
from isice.experiments.manifest import FILE, Entry, Manifest, describe, format_manifest
from isice.experiments.published_numbers import value_of
from isice.metrics import mean_std, wilson_interval
from isice.records import Record, find_records
from isice.report.measured_numbers import MeasuredNumbers

COLUMN = RESULTS / "table1_vgg16_cub200"
PLACE = {"backbone": "vgg16", "dataset": "cub200"}
# Times of start and duration are rounded: runs one after the other overlap by a second.
ALONE = 0.05
SETTINGS = ("data.cache=gpu", "precision=bf16")
# Recipe of the paper's text, in the folder itself, and recipe of the authors'
# script, in a sub-folder.
PUBLISHED = "published_cnn"

HEADER = """# Table 1, VGG-16, Birds: our runs beside the printed column

CUB-200-2011 at 448 px, ImageNet weights, 256 channels. Each folder holds the resolved config, the
metrics by epoch, the record and the predictions of a finished run, without weights and images. This
page and `experiment.json` are written by `python docs/build.py column`; `isice report` on this
folder prints the same numbers. Of the runs of a method, those with the most epochs count.
"""
COMMANDS = """## Commands

`data/cub200` holds CUB-200-2011: the archive, or its images as `train/<class>/*.jpg` and
`test/<class>/*.jpg`. A machine that receives files in parts gets these two folders as several tar
files, all unpacked into `data/cub200`. `isice run … --dry-run` says `no data` until all 5,994
training and 5,794 test images are there. Images that were resized to 448×448 before they were sent
are right for `paper_cnn`, which does the same. `published_cnn` needs their aspect ratio: send them
with a shorter side of 448 pixels or more.

`weights/vgg16.safetensors` holds the weights of the backbone. The records identify the file by the
SHA-256 of its content.

Start from the records here, in the root of the repository, so that their runs are skipped:

```
mkdir -p runs/column && cp -r benchmarks/results/table1_vgg16_cub200/. runs/column
vgg16_birds() {
  isice run "$@" --data-root data --weights-root weights --set data.cache=gpu --set precision=bf16 \\
    --set channels_last=true --set compile=true
}
column() {
  vgg16_birds table1 --limit backbone=vgg16 --limit dataset=cub200 --out runs/column --set optim.epochs=32 "$@"
}
```

Then each line trains a group. Rerun a line to resume it; finished runs are skipped. `--dry-run`
lists what is left, `--estimate` also measures memory and time.

```
column --limit method=low_rank_bilinear,improved_bilinear,smso,run,fcbn,tkpf  # methods without a run
column --limit method=mpn_cov,deep_cov,deep_kspd                              # the same, for the host's cores
vgg16_birds table1_published_cnn --out runs/column/published_cnn              # the recipe of the authors' script
column --limit method=isqrt_cov,mpn_cov,precision,isice --seeds 0,1,2         # methods that the paper trained
column --limit method=netvlad,netfv,compact_bilinear,kernel_pooling,hihca     # methods with 17 epochs
```

The second line decomposes matrices on the cores of the host, while the GPU waits. Start it in
another process beside the others: all may share `runs/column`. Runs of 17 epochs had
`optim.epochs=17`.

Copy the records of finished runs back, without weights and images, and rebuild the tables:

```
cd runs/column
for run in $(grep -rl --include record.json '"status": "finished"' . | xargs -n 1 dirname); do
  cp --parents $run/record.json $run/evaluation.json $run/config.toml $run/metrics.jsonl \\
    ../../benchmarks/results/table1_vgg16_cub200
done
cd ../.. && python docs/build.py --no-draw
```
"""


def pages() -> dict[Path, str]:
    """Return the records' page, and the description by which ``isice report`` finds them."""
    records = finished_records()
    parts = [HEADER.rstrip(), paper_recipe(records), published_recipe(records), COMMANDS]
    described = format_manifest(manifest(records)) + "\n"
    return {COLUMN / "README.md": "\n\n".join(part for part in parts if part), COLUMN / FILE: described}


def finished_records() -> list[Record]:
    """Return the finished runs of the column."""
    return [record for record in find_records(COLUMN) if record["status"] == "finished"]


def paper_recipe(records: list[Record], *, notes: bool = True) -> str:
    """Return the column of the methods with a finished run of ``paper_cnn``, and notes on them."""
    methods = _by_method(records)
    trained = {method: found for method, _, found in methods if found}
    rows = [(method, paper, *_measured(paper, found)) for method, paper, found in methods if found]
    missing = [method for method, _, found in methods if not found]
    header = ["method", "printed, %", "ours, %", "95 % interval", "difference", "training accuracy, %", "epochs"]
    return "\n\n".join([table(header, rows), *([_notes(trained, missing)] if notes else [])])


def published_recipe(records: list[Record]) -> str:
    """Return the runs of the recipe of the authors' script, empty without any."""
    mine = [record for record in records if Path(record["folder"]).parent.name == PUBLISHED]
    published = {method: paper for method, paper, _ in _by_method(records, labels=False)}
    rows = []
    for pooling in dict.fromkeys(record["config"]["model"]["pooling"] for record in mine):
        found = [record for record in mine if record["config"]["model"]["pooling"] == pooling]
        chosen = found[0]["reported_epoch"]
        paper = published.get(pooling, MISSING)
        rows.append((f"`{pooling}`", paper, *_measured(paper, found), str(chosen["epoch"]), chosen["chosen_on"]))
    if not rows:
        return ""
    header = ["pooling", "printed, %", "ours, %", "95 % interval", "difference", "training accuracy, %", "epochs"]
    return f"## Recipe {PUBLISHED}\n\n" + table([*header, "epoch", "epoch chosen on"], rows)


def manifest(records: list[Record]) -> Manifest:
    """Return the column, with the runs of the most epochs of every method that has any."""
    experiment, limits = load_experiment("table1"), {axis: (value,) for axis, value in PLACE.items()}
    epochs = sorted({record["config"]["optim"]["epochs"] for record in records}, reverse=True)
    settings = [[*SETTINGS, f"optim.epochs={count}"] for count in epochs]
    described = [describe(experiment.with_settings(one), limits=limits) for one in settings]
    families, cells = records_by_family(records), dict[str, Entry]()
    for entry in (entry for one in described for entry in one.cells):
        run = next(iter(families.get(entry.family, ())), None)
        if run is not None and entry.at["method"] not in cells:
            own = {"name": Path(run["folder"]).name, "hash": run["hash"], "config": run["config"]}
            cells[entry.at["method"]] = replace(entry, **own)
    order = list(described[0].axes["method"])
    found = tuple(cells[method] for method in order if method in cells)
    return replace(described[0], cells=found, changed=SETTINGS)


def _by_method(records: list[Record], *, labels: bool = True) -> list[tuple[str, str, list[Record]]]:
    """Return label or name, published number and records of every method, in the table's order."""
    column = manifest(records)
    if column.published is None:
        raise ValueError("column: expected published numbers in table1, got none.")
    measured, numbers, rows = MeasuredNumbers(column, records), column.published.by_key, []
    for method, label in column.axes["method"].items():
        place = PLACE | {"method": method}
        paper = numbers.get(tuple(place[axis] for axis in column.published.axes), MISSING)
        rows.append((label if labels else method, paper, measured.records(place)))
    return rows


def _measured(paper: str, records: list[Record]) -> tuple[str, ...]:
    accuracy = mean_std([100 * record["accuracy"]["test"] for record in records])
    low, high = wilson_interval(accuracy.mean / 100, records[0]["images"]["test"])
    spread = "" if accuracy.n == 1 else f" ± {accuracy.std:.1f} ({accuracy.n} seeds)"
    difference = MISSING if paper == MISSING else f"{accuracy.mean - value_of(paper):+.1f}".replace("-", "−")
    last = [record["epochs"][-1] for record in records]
    return (
        f"{accuracy.mean:.1f}{spread}",
        f"{100 * low:.1f} – {100 * high:.1f}",
        difference,
        f"{100 * mean_std([row['train_accuracy'] for row in last]).mean:.1f}",
        ", ".join(_distinct(row["epoch"] for row in last)),
    )


def _notes(trained: dict[str, list[Record]], missing: list[str]) -> str:
    """Return facts on the runs by method, and the methods that have none."""
    records = [record for found in trained.values() for record in found]
    facts = [f"Not trained yet: {', '.join(missing)}."] if missing else []
    for text in _distinct(record.get("schedule") for record in records):
        mine = [method for method, found in trained.items() if any(one.get("schedule") == text for one in found)]
        facts.append(f"Schedule of {', '.join(mine)}: {text}.")
    names = _distinct(record["hardware"].get("gpu") or record["hardware"].get("cpu") for record in records)
    precisions = _distinct(record["config"]["precision"] for record in records)
    facts.append(f"{', '.join(names)}; precision {', '.join(precisions)}; the last epoch is reported.")
    shares = {method: max(shared_time(one, records) for one in found) for method, found in trained.items()}
    if mine := [f"{method} ({100 * share:.0f} %)" for method, share in shares.items() if share > ALONE]:
        facts.append(f"Shared the GPU for a part of the time, so their seconds are not speeds: {', '.join(mine)}.")
    alone = [record for record in records if shared_time(record, records) <= ALONE]
    outside = [sum(one.values()) for record in alone if (one := record.get("seconds_outside_epochs"))]
    if outside:
        facts.append(f"Outside its epochs a run alone on the GPU took {min(outside):.0f} to {max(outside):.0f} s.")
    return "\n".join(textwrap.fill(fact, 100, initial_indent="- ", subsequent_indent="  ") for fact in facts)


def shared_time(record: Record, records: list[Record]) -> float:
    """Return the part of a run's time in which others were under way."""
    begin, end = _span(record)
    others = [_span(other) for other in records if other is not record]
    both = sum(max(min(end, last) - max(begin, first), 0.0) for first, last in others)
    return min(both / max(end - begin, 1e-9), 1.0)


def _span(record: Record) -> tuple[float, float]:
    begin = datetime.datetime.fromisoformat(record["started"]).timestamp()
    return begin, begin + record.get("seconds", 0.0)


def _distinct(values: Any) -> list[str]:
    return list(dict.fromkeys(str(value) for value in values if value))
