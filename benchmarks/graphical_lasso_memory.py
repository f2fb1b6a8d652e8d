"""Measure the peak memory of the choice of λ, by cross-validation and by StARS.

Usage:
    python benchmarks/graphical_lasso_memory.py [--cases cv:1000 stars:200] [--out FILE]

Every case is a process of its own with one thread: selection and number of variables D, D/2 samples
of a random walk in noise, five folds or 20 subsamples, 20 values of λ. What it held after the
imports is given apart. Memory depends little on ``tol`` and on the smallest λ, so loose ones do.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphical_lasso import environment
from isice.estimator import SparsePrecisionCV

RESULTS = Path(__file__).parent / "results"
OPTIONS = {"cv": 5, "n_subsamples": 20, "sparsities": 20, "n_refinements": 0, "min_ratio": 0.3, "tol": 1e-3}


def peak_bytes() -> int:
    """Return the largest resident memory of this process so far."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(selection: str, size: int) -> dict[str, Any]:
    """Fit once in this process."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    x = np.cumsum(rng.normal(size=(size // 2, size)) * 0.5, axis=1) * 0.1
    x += rng.normal(size=x.shape)
    before, begin = peak_bytes(), time.process_time()
    model = SparsePrecisionCV(selection=selection, **OPTIONS).fit(x)
    row = {"selection": selection, "size": size, **OPTIONS, "max_memory": model.max_memory}
    row |= {"before_bytes": before, "peak_bytes": peak_bytes()}
    return row | {"cpu_seconds": time.process_time() - begin}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=["cv:1000", "stars:200"], metavar="SELECTION:D")
    parser.add_argument("--out", type=Path, default=RESULTS / "graphical_lasso_memory.json")
    parser.add_argument("--one", metavar="SELECTION:D", help="measure one case in this process and print it")
    args = parser.parse_args()
    if args.one is not None:
        selection, size = args.one.split(":")
        print(json.dumps(measure(selection, int(size))))
        return
    record: dict[str, Any] = {"title": "memory of the choice of λ", **environment("cpu"), "rows": []}
    for case in args.cases:
        run = subprocess.run([sys.executable, __file__, "--one", case], stdout=subprocess.PIPE, text=True, check=True)
        record["rows"].append(json.loads(run.stdout))
        print(record["rows"][-1], flush=True)
    args.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
