"""The README's table of results and that of the CUB-200 records."""

import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.pages import RESULTS, ROOT, filled, read_results, table

from isice.metrics import mean_std

PAGE = ROOT / "README.md"
CUB = RESULTS / "cub200_vgg16_224"
POOLINGS = {
    "gap": "average pooling",
    "isqrt_cov": "iSQRT-COV",
    "precision": "Precision Ω",
    "isice": "iSICE",
}
BEST = {"isqrt_cov": "iSQRT-COV", "partial_correlation": "partial correlation"}
SIZES = (224, 448)


def pages() -> dict[Path, str]:
    """Return both pages with their tables."""
    tables = {PAGE: results(), CUB / "README.md": cub_runs()}
    return {page: filled(page.read_text(encoding="utf-8"), {"results": text}) for page, text in tables.items()}


def results() -> str:
    """Return accuracy over three seeds and cost of two poolings as a Markdown table."""
    steps = {row["head"]: row for row in read_results("training_step_partial_correlation_h200")["rows"]}
    rows = [
        (f"{name} (`{key}`)", *(_over_seeds(key, size) for size in SIZES), *_cost(steps[key]))
        for key, name in BEST.items()
    ]
    return table(["pooling", *(f"CUB-200, {size} px" for size in SIZES), "training step", "peak memory"], rows)


def cub_runs() -> str:
    """Return accuracy, calibration and speed of the CUB-200 runs as a Markdown table."""
    rows = []
    for key in POOLINGS:
        run = _run(key)
        record, evaluation = _json(run / "record.json"), _json(run / "evaluation.json")["evaluations"][0]
        epochs = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        accuracy = [record["accuracy"]["test"], evaluation["top5"], evaluation["ece"]]
        speed = statistics.median(epoch["images_per_second"] for epoch in epochs)
        seconds = record["seconds_per_epoch"] * len(epochs)
        rows.append((f"`{key}`", *(f"{100 * value:.1f}" for value in accuracy), f"{speed:.0f}", f"{seconds:.0f}"))
    header = ["pooling", "top-1 %", "top-5 %", "calibration error %", "images/s, median epoch", "training, s"]
    return table(header, rows)


def short_runs(pixels: int) -> dict[str, list[float]]:
    """Return the test accuracies (%) of `isice run shrinkage_short` by pooling, in seed order."""
    found: dict[str, list[float]] = defaultdict(list)
    for folder in sorted((RESULTS / f"shrinkage_vgg16_cub200_{pixels}" / "short").iterdir()):
        record = _json(folder / "record.json")
        found[record["config"]["model"]["pooling"]].append(100 * record["accuracy"]["test"])
    return dict(found)


def _run(pooling: str) -> Path:
    return next(CUB.glob(f"{pooling}-seed0-*"))


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _cost(row: dict[str, Any]) -> tuple[str, str]:
    return f"{row['step_ms']:.1f} ms (× {row['ratio_to_gap']:.2f})", f"{row['peak_mib'] / 1024:.1f} GiB"


def _over_seeds(pooling: str, pixels: int) -> str:
    mean, std, _ = mean_std(short_runs(pixels)[pooling])
    return f"{mean:.1f} ± {std:.1f} %"
