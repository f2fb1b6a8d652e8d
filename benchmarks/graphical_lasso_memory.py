"""Measure the peak memory of the choice of λ by cross-validation.

Usage:
    python benchmarks/graphical_lasso_memory.py [--size 1000] [--min-ratio 0.3] [--out FILE]

One thread, five folds and 20 values of λ, D/2 samples of a random walk in noise. The peak is that
of the process; what it held after the imports is given apart. Memory does not depend on ``tol`` and
on the smallest λ, so loose ones do.
"""

import argparse
import json
import resource
import time
import warnings
from pathlib import Path

import numpy as np
import torch

from graphical_lasso import environment
from isice.estimator import SparsePrecisionCV

RESULTS = Path(__file__).parent / "results"


def peak_bytes() -> int:
    """Return the largest resident memory of this process so far."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--min-ratio", type=float, default=0.3)
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--out", type=Path, default=RESULTS / "graphical_lasso_memory.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    x = np.cumsum(rng.normal(size=(args.size // 2, args.size)) * 0.5, axis=1) * 0.1
    x += rng.normal(size=x.shape)
    before, begin = peak_bytes(), time.process_time()
    model = SparsePrecisionCV(cv=5, sparsities=20, n_refinements=0, min_ratio=args.min_ratio, tol=args.tol).fit(x)
    row = {"size": args.size, "folds": 5, "sparsities": 20, "min_ratio": args.min_ratio, "tol": args.tol}
    row |= {"max_memory": model.max_memory, "before_bytes": before, "peak_bytes": peak_bytes()}
    row["cpu_seconds"] = time.process_time() - begin
    record = {"title": "memory of cross-validation", **environment("cpu"), "rows": [row]}
    args.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(row)


if __name__ == "__main__":
    main()
