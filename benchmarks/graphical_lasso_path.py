"""Compare a path of twenty λ with cold starts, with one batch of all λ, and with QUIC's path.

Usage:
    python benchmarks/graphical_lasso_path.py [--sizes 50 200 500] [--quic LIBRARY] [--out FILE]

CPU time of one thread, the shortest of the rounds, in which all take turns; λ from the largest
useful one down to a twentieth of it. QUIC (see graphical_lasso_peers.py) gets the loosest tolerance
whose objectives are all within tol·D of the minimum; it is left out above ``--quic-size``, like the
batch, whose memory grows with the number of λ.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from graphical_lasso import environment, objective
from graphical_lasso_peers import KINDS, LADDER, quic_path
from isice.ops.graphical_lasso import graphical_lasso, graphical_lasso_path, sparsity_max

RESULTS = Path(__file__).parent / "results"


def milliseconds(run: Callable[[], Any]) -> tuple[float, Any]:
    """Return CPU time and the result."""
    begin = time.process_time()
    result = run()
    return 1e3 * (time.process_time() - begin), result


def quic_tolerance(solve: Callable[..., np.ndarray], cov: Tensor, grid: Tensor, tol: float) -> float | None:
    """Return the loosest tolerance of QUIC with objectives within tol·D of lower bounds."""
    exact = graphical_lasso_path(cov, grid, scale="raw", tol=0.01 * tol)
    matrix, values = cov.numpy(), grid.numpy()
    pairs = zip(values, exact.precision.numpy(), exact.gap.numpy(), strict=True)
    bounds = [objective(matrix, value, theta) - gap for value, theta, gap in pairs]
    for candidate in LADDER:
        found = [objective(matrix, v, theta) for v, theta in zip(values, solve(matrix, values, candidate), strict=True)]
        if all(f - b <= tol * len(matrix) for f, b in zip(found, bounds, strict=True)):
            return candidate
    return None


def compare(kind: str, size: int, tol: float, args: argparse.Namespace) -> dict[str, Any]:
    """Return times and iterations of one family of matrices."""
    cov = KINDS[kind](size, 1, 0)[0]
    grid = sparsity_max(cov, scale="raw") * torch.logspace(0, -1.3, 20, dtype=torch.float64)
    runs: dict[str, Callable[[], Any]] = {
        "cold_ms": lambda: [graphical_lasso(cov, value, scale="raw", tol=tol) for value in grid],
        "path_ms": lambda: graphical_lasso_path(cov, grid, scale="raw", tol=tol),
    }
    if size <= args.quic_size:
        runs["batch_ms"] = lambda: graphical_lasso(cov, grid, scale="raw", tol=tol)
        if args.quic is not None:
            solve = quic_path(args.quic)
            quic_tol = quic_tolerance(solve, cov, grid, tol)
            if quic_tol is not None:
                runs["quic_ms"] = lambda: solve(cov.numpy(), grid.numpy(), quic_tol)
    times: dict[str, list[float]] = {name: [] for name in runs}
    results = {}
    for _ in range(args.rounds if size <= args.quic_size else 1):
        for name, run in runs.items():
            spent, results[name] = milliseconds(run)
            times[name].append(spent)
    row: dict[str, Any] = {"kind": kind, "size": size, "tol": tol} | {name: min(t) for name, t in times.items()}
    path = results["path_ms"]
    row |= {"cold_iterations": sum(int(r.n_iter) for r in results["cold_ms"])}
    row |= {"path_iterations": int(path.n_iter.sum()), "largest_gap": float(path.gap.max()) / size}
    return row | {"ratio": row["cold_ms"] / row["path_ms"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[50, 200, 500])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quic", type=Path, help="QUIC of skggm as a shared library")
    parser.add_argument("--quic-size", type=int, default=200)
    parser.add_argument("--out", type=Path, default=RESULTS / "graphical_lasso_path.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)  # NumPy's BLAS, which QUIC may share; waiting threads count as CPU time
    record: dict[str, Any] = {"title": "graphical lasso: paths", **environment("cpu"), "rows": []}
    for size, kind, tol in ((s, k, t) for s in args.sizes for k in KINDS for t in (1e-4, 1e-6)):
        record["rows"].append(compare(kind, size, tol, args))
        print(record["rows"][-1], flush=True)
        args.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
