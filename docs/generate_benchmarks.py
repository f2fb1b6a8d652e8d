"""docs/benchmarks.md: what each pooling costs, from the records of benchmarks/heads.py."""

import warnings
from pathlib import Path
from typing import Any

from benchmarks.pages import MISSING, ROOT, provenance, read_results

from isice._specs import format_spec, parse_spec
from isice.pooling import create_pooling

PAGE = ROOT / "docs" / "benchmarks.md"
RECORDS = ("heads_cuda", "heads_h200_batch128", "heads_cpu")

HEADER = """# What each pooling costs

<!-- Generated from `benchmarks/results/` by `python docs/build.py benchmarks`; do not edit. -->

Time and memory of every pooling layer alone, on a GPU and on a CPU thread. Whole training steps,
precision modes and numerical error on a GPU: [gpu.md](gpu.md).

| column | meaning |
|---|---|
| forward, fwd+bwd | median time without and with the backward pass; `*`: one run |
| saved MiB | memory that autograd saves for the backward pass |
| peak MiB | peak memory beyond input and weights (GPU only) |

Rows are sorted by fwd+bwd. A layer whose first run took more than 2 s was timed once (`*`). Layers
ran on random ReLU features at the options that were the default when the record was written; a row
names those that no longer are. Short GPU times are mostly launch overhead, which a training step
hides. CPU times are processor times. `python benchmarks/heads.py` measures your machine.
"""


def pages() -> dict[Path, str]:
    """Return the page."""
    return {PAGE: "\n".join([HEADER, *map(section, map(read_results, RECORDS))])}


def section(record: dict[str, Any]) -> str:
    """Return one record as a section: hardware, table, command."""
    facts, title = provenance(record), record["title"].partition(", ")[2]
    return f"## {facts.partition(';')[0]}: {title}\n\n{costs(record['rows'])}\n\n{facts}\n"


def costs(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table, fastest first."""
    lines = ["| pooling | features | forward ms | fwd+bwd ms | saved MiB | peak MiB |", "|---|--:|--:|--:|--:|--:|"]
    for row in sorted(rows, key=lambda row: row["forward_backward_ms"]):
        peak = MISSING if row["peak_mib"] is None else f"{row['peak_mib']:.0f}"
        once = " *" if row["repeats"] == 1 else ""
        times = f"{row['forward_ms']:.2f}{once} | {row['forward_backward_ms']:.2f}{once}"
        lines.append(f"| `{recorded_spec(row)}` | {row['out_features']:,} | {times} | {row['kept_mib']:.0f} | {peak} |")
    return "\n".join(lines)


def recorded_spec(row: dict[str, Any]) -> str:
    """Return the pooling with those of its recorded options that are no longer the default.

    Options without effect are left out.
    """
    name, recorded = parse_spec(row["spec"])
    defaults = create_pooling(name, 16, num_classes=2).options
    with warnings.catch_warnings(action="ignore"):  # of options without effect
        options = create_pooling(row["spec"], 16, num_classes=2).options
    changed = {key: options[key] for key in recorded if options[key] != defaults[key]}
    return format_spec(name, changed) if changed else name
