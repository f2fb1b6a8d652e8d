"""Measure CPU time and memory of importing the estimators, beside torch and scikit-learn alone.

Usage:
    python benchmarks/estimator_import.py [--rounds 5] [--out FILE]

User and system time of a fresh process with one thread, the shortest of the rounds, in which all
take turns. Files are in the page cache after the first round. Compile the package first, as pip
does: ``python -m compileall src/isice``.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from graphical_lasso import environment

RESULTS = Path(__file__).parent / "results"
IMPORTS = {
    "torch": "import torch",
    "sklearn.base": "import sklearn.base",
    "torch, sklearn.covariance": "import torch, sklearn.covariance",
    "isice.estimator": "from isice.estimator import SparsePrecisionCV",
}
# ru_maxrss would include this process, from which the others are forked.
REPORT = """
import os
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
print(sum(os.times()[:2]), peak)
"""


def measure(statement: str) -> tuple[float, int]:
    """Return CPU seconds and peak bytes of a process that only imports."""
    command = [sys.executable, "-c", f"{statement}\n{REPORT}"]
    run = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    seconds, kilobytes = run.stdout.split()
    return float(seconds), 1024 * int(kilobytes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "estimator_import.json")
    args = parser.parse_args()
    record: dict[str, Any] = {"title": "import of the estimators", **environment("cpu"), "load": os.getloadavg()[0]}
    found: dict[str, list[tuple[float, int]]] = {name: [] for name in IMPORTS}
    for _ in range(args.rounds):
        for name, statement in IMPORTS.items():
            found[name].append(measure(statement))
    record["rows"] = [
        {"import": name, "cpu_seconds": min(t for t, _ in runs), "peak_bytes": min(b for _, b in runs)}
        for name, runs in found.items()
    ]
    args.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(json.dumps(record["rows"], indent=1))


if __name__ == "__main__":
    main()
