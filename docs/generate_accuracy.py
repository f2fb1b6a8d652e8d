"""Tables of docs/accuracy.md and its page of measurements, from training records."""

import itertools
import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import generate_column
import generate_linear_probe
from benchmarks.pages import RESULTS, ROOT, filled, read_results, table
from generate_readme import CUB, POOLINGS, SIZES, short_runs
from scipy.stats import binomtest, ttest_ind

from isice.data.augmentation import crop_side
from isice.metrics import mean_std, wilson_interval

PAGE = ROOT / "docs" / "accuracy.md"
MEASUREMENTS = ROOT / "docs" / "internals" / "accuracy.md"
STUDY = RESULTS / "shrinkage_vgg16_cub200_224"
AUGMENTED = RESULTS / "finegrained_vgg16_cub200_448"
# Settings of the search in the order of the table; a folder is named after its setting.
SETTINGS = {
    "isqrt": "iSQRT-COV",
    "ridge_10_x5": "ridge 10, × 5, centred",
    "learned": "learned ridge and scale, from 10 and 5, centred",
    "ledoit_wolf_x5": "Ledoit–Wolf, × 5",
}
# Labels of the draft that wrote the record, and those of the script.
RENAMED = {
    "… and centred": "… and centred, concatenated",
    "rate 4e-5, head 3 ×": "backbone rate 4e-5",
    "rate 3e-4, head 1 ×": "backbone rate 3e-4",
}
# Augmentations of `shrinkage_recipe` that are recorded; a folder is named after its augmentation.
AUGMENTATIONS = {
    "plain": "flips only",
    "crop": "crops",
    "crop_color_erase": "crops, colours, erasing",
    "crop_cutmix": "crops, CutMix",
}


def pages() -> dict[Path, str]:
    """Return the user's page and the page of measurements with their tables."""
    column = generate_column.paper_recipe(generate_column.finished_records(), notes=False)
    tables = {
        PAGE: {
            "seeds": seeds(),
            "probe-summary": generate_linear_probe.summary(),
            "augmented": augmented(),
            "poolings": poolings(),
            "column": column,
        },
        MEASUREMENTS: {"held-out": held_out(), "search": search(), "recipes": recipes()},
    }
    return {page: filled(page.read_text(encoding="utf-8"), content) for page, content in tables.items()}


def poolings() -> str:
    """Return the test accuracy of the poolings at their published settings."""
    records = {key: _record(next(CUB.glob(f"{key}-seed0-*"))) for key in POOLINGS}
    rows = [(f"{POOLINGS[key]} (`{key}`)", *_accuracy(record, "test")) for key, record in records.items()]
    return table(["pooling", "test, %", "95 % interval"], rows)


def search() -> str:
    """Return validation and test accuracy of the settings of the search."""
    rows = []
    for setting, label in SETTINGS.items():
        record = _record(next((STUDY / "search").glob(f"{setting}-seed*")))
        rows.append((label, *_accuracy(record, "val"), *_accuracy(record, "test")))
    return table(["pooling", "validation, %", "95 % interval", "test, %", "95 % interval"], rows)


def seeds() -> str:
    """Return test accuracies by seed, their mean, standard deviation and lead over iSQRT-COV."""
    rows = []
    for pixels in SIZES:
        runs = short_runs(pixels)
        for pooling, values in runs.items():
            mean, std, _ = mean_std(values)
            lead = "" if pooling == "isqrt_cov" else _difference(values, runs["isqrt_cov"])
            by_seed = " · ".join(f"{value:.1f}" for value in values)
            rows.append((f"{pixels} px", f"`{pooling}`", by_seed, f"{mean:.2f}", f"{std:.2f}", lead))
    return table(["images", "pooling", "test, % by seed", "mean", "standard deviation", "lead"], rows)


def _difference(ours: list[float], others: list[float]) -> str:
    """Return the difference of two means with Welch's 95 % interval over the seeds."""
    interval = ttest_ind(ours, others, equal_var=False).confidence_interval(0.95)
    return f"{mean_std(ours).mean - mean_std(others).mean:+.2f} ({interval.low:.2f} – {interval.high:.2f})"


def held_out() -> str:
    """Return the accuracy on held-out training images of the settings that were compared."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in read_results("frozen_blocks_h200")["rows"]:
        pooling, comma, changed = row["label"].partition(", ")
        found[_renamed(pooling) + comma + _renamed(changed)].append(100 * row["accuracy"])
    rows = [(label, " · ".join(f"{value:.1f}" for value in values)) for label, values in found.items()]
    return table(["setting", "held out, % by seed"], rows)


def _renamed(label: str) -> str:
    return RENAMED.get(label, label)


def recipes() -> str:
    """Return validation accuracy and speed of two poolings with several augmentations."""
    rows = []
    for (name, label), pooling in itertools.product(AUGMENTATIONS.items(), ("isqrt", "partial_correlation")):
        record = _record(next((STUDY / "recipe").glob(f"{name}-{pooling}-seed0-*")))
        speed = statistics.median(epoch["images_per_second"] for epoch in record["epochs"])
        spec = record["config"]["model"]["pooling"]
        rows.append((label, f"`{spec}`", *_accuracy(record, "val"), *_accuracy(record, "test"), f"{speed:.0f}"))
    header = ["augmentation", "pooling", "validation, %", "95 % interval", "test, %", "95 % interval", "images/s"]
    return table(header, rows)


def augmented() -> str:
    """Return the test accuracy of augmented runs at 448 px by the size of training images."""
    runs = {
        (folder, record["config"]["model"]["pooling"]): (record, _correct(run))
        for folder in ("crops", "small_crops")
        for run in sorted((AUGMENTED / folder).iterdir())
        for record in [_record(run)]
    }
    rows = []
    for (folder, pooling), (record, correct) in runs.items():
        config = record["config"]
        side = crop_side(config["data"]["image_size"], config["augment"]["crop_size"])
        tested = "image and mirror image" if config["eval_flip"] else "image"
        others = (folder, "isqrt_cov"), ("crops", pooling)
        compared = ["" if other == (folder, pooling) else _paired(correct, runs[other][1]) for other in others]
        rows.append((f"{side} px", tested, f"`{pooling}`", *_accuracy(record, "test"), *compared))
    header = ["training images", "evaluation", "pooling", "test, %", "95 % interval"]
    return table([*header, "against `isqrt_cov`", "against 448 px"], rows)


def _correct(run: Path) -> list[bool]:
    """Return for every test image whether its class was predicted."""
    found = json.loads((run / "evaluation.json").read_text(encoding="utf-8"))["evaluations"][0]
    return [true == predicted for true, predicted in zip(found["targets"], found["predicted"], strict=True)]


def _paired(ours: list[bool], others: list[bool]) -> str:
    """Return the difference in points, and p of the exact McNemar test."""
    wins, losses = (sum(a and not b for a, b in zip(*pair, strict=True)) for pair in ((ours, others), (others, ours)))
    p = binomtest(wins, wins + losses).pvalue
    return f"{100 * (wins - losses) / len(ours):+.1f} (p = {p:.2f})"


def _accuracy(record: dict[str, Any], split: str) -> tuple[str, str]:
    """Return accuracy and sampling interval on one split."""
    accuracy = record["accuracy"][split]
    low, high = wilson_interval(accuracy, record["images"][split])
    return f"{100 * accuracy:.1f}", f"{100 * low:.1f} – {100 * high:.1f}"


def _record(folder: Path) -> Any:
    return json.loads((folder / "record.json").read_text(encoding="utf-8"))
