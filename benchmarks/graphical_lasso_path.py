"""Compare a path of twenty λ with warm starts and with cold ones.

Usage:
    python benchmarks/graphical_lasso_path.py [--sizes 50 200] [--out FILE]

CPU time of one thread, the shorter of two rounds; λ from the largest useful one
down to a twentieth of it.
"""

import argparse
import json
import time
from pathlib import Path

import torch

from graphical_lasso import environment
from graphical_lasso_peers import KINDS
from isice.ops.graphical_lasso import graphical_lasso, graphical_lasso_path, sparsity_max

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[50, 200])
    parser.add_argument("--out", type=Path, default=RESULTS / "graphical_lasso_path.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for size, kind, tol in ((s, k, t) for s in args.sizes for k in KINDS for t in (1e-4, 1e-6)):
        cov = KINDS[kind](size, 1, 0)[0]
        grid = sparsity_max(cov, scale="raw") * torch.logspace(0, -1.3, 20, dtype=torch.float64)
        row = {"kind": kind, "size": size, "tol": tol, "cold_ms": float("inf"), "path_ms": float("inf")}
        for _ in range(2):
            begin = time.process_time()
            cold = [graphical_lasso(cov, value, scale="raw", tol=tol) for value in grid]
            middle = time.process_time()
            path = graphical_lasso_path(cov, grid, scale="raw", tol=tol)
            row["cold_ms"] = min(row["cold_ms"], 1e3 * (middle - begin))
            row["path_ms"] = min(row["path_ms"], 1e3 * (time.process_time() - middle))
        row |= {"cold_iterations": sum(int(r.n_iter) for r in cold), "path_iterations": int(path.n_iter.sum())}
        rows.append(row | {"ratio": row["cold_ms"] / row["path_ms"]})
        print(rows[-1], flush=True)
    record = {"title": "graphical lasso: paths", **environment("cpu"), "rows": rows}
    args.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
