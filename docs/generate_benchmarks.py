"""Writes docs/benchmarks.md, the tables of the measured costs, from the records in benchmarks/results/.

Usage: python docs/generate_benchmarks.py
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.heads import markdown

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
RECORDS = ("heads_cuda", "heads_cpu")

HEADER = """# What the heads cost

Generated from the records in `benchmarks/results/` by `python docs/generate_benchmarks.py`; do not edit.

Time of forward alone and of forward and backward, memory that autograd keeps for backward, and peak memory beyond input
and weights (GPU only). Median of the repeats; default options of each head; synthetic ReLU-like maps. A CPU that others
use at the same time gives ratios, not times. On the GPU, times below some 8 ms are mostly those of launching, and
differ between machines by up to 1.7 times. Whole training steps, other sizes, precision modes, accuracy on a GPU and
what limits it: [gpu.md](gpu.md).
"""


def section(name: str) -> str:
    """One record as a section: what, where, with which code and command, and its table."""
    record: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    hardware, versions = record["hardware"], record["versions"]
    place = hardware.get("gpu") or f"{hardware['cpu']}, {hardware['threads']} threads"
    facts = (
        f"{place}; torch {versions['torch']}; commit {record['commit']}; seed {record['seed']}; `{record['command']}`"
    )
    return f"## {record['title']}, {place}\n\n{markdown(record['rows'])}\n\n{facts}\n"


def page() -> str:
    """The whole page; a record that does not exist is left out."""
    found = [name for name in RECORDS if (ROOT / "benchmarks" / "results" / f"{name}.json").exists()]
    return "\n".join([HEADER, *map(section, found)])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
