"""Tables of docs/accuracy.md and of the shrinkage records, from training records."""

import json
from pathlib import Path
from typing import Any

from benchmarks.pages import RESULTS, ROOT, filled, table
from generate_readme import CUB, POOLINGS

from isice.metrics import mean_std, wilson_interval

PAGE = ROOT / "docs" / "accuracy.md"
STUDY = RESULTS / "shrinkage_vgg16_cub200_224"
# Settings of the search in the order of the table; a folder is named after its setting.
SETTINGS = {
    "isqrt": "iSQRT-COV",
    "ridge_10_x5": "ridge 10, × 5",
    "learned": "learned ridge and scale, from 10 and 5",
    "ledoit_wolf_x5": "Ledoit–Wolf, × 5",
}


def pages() -> dict[Path, str]:
    """Return the user's page and the records' page with their tables."""
    tables = {
        PAGE: {"poolings": poolings(), "search": search(), "seeds": seeds()},
        STUDY / "README.md": {"throughput": throughput()},
    }
    return {page: filled(page.read_text(encoding="utf-8"), parts) for page, parts in tables.items()}


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
    """Return test accuracies by seed, their mean and their standard deviation."""
    runs = [_record(folder) for folder in sorted((STUDY / "short").iterdir())]
    rows = []
    for pooling in dict.fromkeys(run["config"]["model"]["pooling"] for run in runs):
        values = [100 * run["accuracy"]["test"] for run in runs if run["config"]["model"]["pooling"] == pooling]
        summary = mean_std(values)
        by_seed = " · ".join(f"{value:.1f}" for value in values)
        rows.append((f"`{pooling}`", by_seed, f"{summary.mean:.2f}", f"{summary.std:.2f}"))
    return table(["pooling", "test, % by seed", "mean", "standard deviation"], rows)


def throughput() -> str:
    """Return images per second by epoch, without and with augmentation."""
    rows = []
    for name, label in {"plain": "flips only", "augmented": "crops, TrivialAugment, colour, erasing, CutMix"}.items():
        epochs = _record(STUDY / "throughput" / name)["epochs"]
        rows.append((label, " · ".join(f"{epoch['images_per_second']:.0f}" for epoch in epochs)))
    return table(["augmentation", "images/s by epoch"], rows)


def _accuracy(record: dict[str, Any], split: str) -> tuple[str, str]:
    """Return accuracy and sampling interval on one split."""
    accuracy = record["accuracy"][split]
    low, high = wilson_interval(accuracy, record["images"][split])
    return f"{100 * accuracy:.1f}", f"{100 * low:.1f} – {100 * high:.1f}"


def _record(folder: Path) -> Any:
    return json.loads((folder / "record.json").read_text(encoding="utf-8"))
