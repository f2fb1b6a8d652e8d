"""The README's table of results, from the records of CUB-200 and of a training step."""

import json
from pathlib import Path
from typing import Any

from benchmarks.pages import MISSING, RESULTS, ROOT, filled, read_results, table

PAGE = ROOT / "README.md"
POOLINGS = {
    "gap": "average pooling",
    "isqrt_cov": "iSQRT-COV",
    "precision": "Precision Ω",
    "isice": "iSICE",
}


def pages() -> dict[Path, str]:
    """Return the README with its table."""
    return {PAGE: filled(PAGE.read_text(encoding="utf-8"), {"results": results()})}


def results() -> str:
    """Return accuracy and cost of each pooling as a Markdown table."""
    steps = {row["head"]: row for row in read_results("training_step_h200")["rows"] if row["mode"] == "high"}
    rows = [(f"{name} (`{key}`)", *_accuracy(key), *_cost(steps.get(key))) for key, name in POOLINGS.items()]
    header = ["pooling", "CUB-200 top-1", "top-5", "training step", "peak memory"]
    return table(header, rows)


def _accuracy(pooling: str) -> tuple[str, str]:
    runs = sorted((RESULTS / "cub200_vgg16_224").glob(f"{pooling}-seed0-*"))
    if not runs:
        return MISSING, MISSING
    record = json.loads((runs[0] / "record.json").read_text(encoding="utf-8"))
    evaluation = json.loads((runs[0] / "evaluation.json").read_text(encoding="utf-8"))["evaluations"][0]
    return f"{100 * record['accuracy']['test']:.1f} %", f"{100 * evaluation['top5']:.1f} %"


def _cost(row: dict[str, Any] | None) -> tuple[str, str]:
    if row is None:
        return MISSING, MISSING
    return f"{row['step_ms']:.1f} ms (× {row['ratio_to_gap']:.2f})", f"{row['peak_mib'] / 1024:.1f} GiB"
