"""The README's table of results and that of the CUB-200 records."""

import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.pages import MISSING, RESULTS, ROOT, filled, read_results, table

PAGE = ROOT / "README.md"
CUB = RESULTS / "cub200_vgg16_224"
POOLINGS = {
    "gap": "average pooling",
    "isqrt_cov": "iSQRT-COV",
    "precision": "Precision Ω",
    "isice": "iSICE",
}


def pages() -> dict[Path, str]:
    """Return both pages with their tables."""
    tables = {PAGE: results(), CUB / "README.md": cub_runs()}
    return {page: filled(page.read_text(encoding="utf-8"), {"results": text}) for page, text in tables.items()}


def results() -> str:
    """Return accuracy and cost of each pooling as a Markdown table."""
    steps = {row["head"]: row for row in read_results("training_step_h200")["rows"] if row["mode"] == "high"}
    rows = [(f"{name} (`{key}`)", *_accuracy(key), *_cost(steps.get(key))) for key, name in POOLINGS.items()]
    return table(["pooling", "CUB-200 top-1", "top-5", "training step", "peak memory"], rows)


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


def _run(pooling: str) -> Path:
    return next(CUB.glob(f"{pooling}-seed0-*"))


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _accuracy(pooling: str) -> tuple[str, str]:
    run = _run(pooling)
    top1 = _json(run / "record.json")["accuracy"]["test"]
    top5 = _json(run / "evaluation.json")["evaluations"][0]["top5"]
    return f"{100 * top1:.1f} %", f"{100 * top5:.1f} %"


def _cost(row: dict[str, Any] | None) -> tuple[str, str]:
    if row is None:
        return MISSING, MISSING
    return f"{row['step_ms']:.1f} ms (× {row['ratio_to_gap']:.2f})", f"{row['peak_mib'] / 1024:.1f} GiB"
