"""Compare the graphical lasso on a CPU with the best setting of every peer, per matrix and batch.

Usage:
    python benchmarks/graphical_lasso_peers.py [--quic LIBRARY] [--sizes 50 200 500 1000] [--append]

``--quic`` names QUIC.C of skggm, compiled as a shared library and linked with LAPACK
whose integers have 64 bits; without it QUIC is left out. GGLasso and skglm are left out
where they are not installed.

Every solver gets the same correlation matrix and objective. Its tolerance is the loosest of a
ladder whose answer is within the target of the optimum, measured by the objective in float64. Where
scikit-learn's ``enet_tol`` is free, the default and 0.1·tol/D are both tried and the faster one
that suffices counts. CPU time of one thread; the solvers take turns in every round, and the
shortest run counts: one round above D = 500, and five runs in a row of less than 20 ms. An attempt
of a peer ends after ``--limit`` seconds: the peer is recorded as slower, and left out of larger
matrices of that kind and λ. The optimum is known to 1e-8·D.

Up to D = 200 there are also batches of ours and two families that are hard for all: an
autoregressive process with ρ = 0.99, and rank one. skglm and scikit-learn's default ``enet_tol``
are measured up to D = 50. ``--append`` keeps the rows of other cells; each row has its commit,
limit and load.
"""

import argparse
import ctypes
import functools
import importlib.util
import itertools
import json
import math
import multiprocessing
import os
import resource
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphical_lasso import Cell, environment, finite, objective, run_gglasso, sparse_model
from graphical_lasso import _correlation as correlation
from isice.ops.graphical_lasso import graphical_lasso

RESULTS = Path(__file__).parent / "results"
SPARSITIES = (0.3, 0.1, 0.03)
TARGETS = (1e-4, 1e-7)
LADDER = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
N_FACTORS = 5
MAX_BATCHED = 200  # also of slow families
MAX_SLOW_PEERS = 50
MAX_REPEATED = 5.0  # seconds of an attempt that is repeated
SHORT, SHORT_REPEATS = 20.0, 5  # milliseconds of a short run, and its repetitions in a round
SLOW_PEERS = ("sklearn, default enet_tol", "skglm")

Solver = Callable[[np.ndarray, float, float], np.ndarray]


def chain(size: int, batch: int, seed: int) -> Tensor:
    """Return correlations of 4·D samples of a chain, an autoregressive process with ρ = 0.6."""
    generator = torch.Generator().manual_seed(seed)
    place = torch.arange(size, dtype=torch.float64)
    root = torch.linalg.cholesky(0.6 ** (place[:, None] - place).abs())
    return correlation(root @ torch.randn(batch, size, 4 * size, generator=generator, dtype=torch.float64))


def factors(size: int, batch: int, seed: int) -> Tensor:
    """Return singular correlations of D/2 samples with five factors."""
    generator = torch.Generator().manual_seed(seed)
    loadings = torch.randn(batch, size, N_FACTORS, generator=generator, dtype=torch.float64)
    scores = torch.randn(batch, N_FACTORS, size // 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(batch, size, size // 2, generator=generator, dtype=torch.float64)
    return correlation(loadings @ scores + noise)


def autoregressive(size: int, batch: int, seed: int) -> Tensor:
    """Return the exact correlations of an autoregressive process with ρ = 0.99."""
    place = torch.arange(size, dtype=torch.float64)
    return (0.99 ** (place[:, None] - place).abs()).repeat(batch, 1, 1)


def rank_one(size: int, batch: int, seed: int) -> Tensor:
    """Return the correlations of one sample: products of signs."""
    signs = torch.randn(batch, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).sign()
    return signs[:, :, None] * signs[:, None]


KINDS = {"sparse": sparse_model, "chain": chain, "factors": factors}
SLOW_KINDS = {"ar(0.99)": autoregressive, "rank one": rank_one}


def run_sklearn(cov: np.ndarray, sparsity: float, tol: float) -> np.ndarray:
    """Solve by coordinate descent whose inner tolerance matches the outer one."""
    from sklearn.covariance import graphical_lasso as solve

    return solve(cov, sparsity, tol=tol, enet_tol=0.1 * tol / len(cov), max_iter=200)[1]


def run_sklearn_default(cov: np.ndarray, sparsity: float, tol: float) -> np.ndarray:
    """Solve with scikit-learn's default ``enet_tol``."""
    from sklearn.covariance import graphical_lasso as solve

    return solve(cov, sparsity, tol=tol, max_iter=200)[1]


def run_skglm(cov: np.ndarray, sparsity: float, tol: float) -> np.ndarray:
    """Solve by skglm's primal coordinate descent."""
    from skglm.covariance import GraphicalLasso

    model = GraphicalLasso(alpha=sparsity, weights=1 - np.eye(len(cov)), algo="primal", tol=tol, max_iter=1000)
    return model.fit(cov, mode="precomputed").precision_


def quic_solver(library: Path) -> Solver:
    """Return QUIC of a compiled library; it stops on the relative subgradient."""
    along_path = quic_path(library)
    return lambda cov, sparsity, tol: along_path(cov, np.array([sparsity]), tol)[0]


def quic_path(library: Path) -> Callable[[np.ndarray, np.ndarray, float], np.ndarray]:
    """Return QUIC for descending λ (L,), with its own warm starts: precision matrices (L, D, D)."""
    compiled = ctypes.CDLL(str(library))

    def pointer(array: np.ndarray) -> ctypes.c_void_p:
        return array.ctypes.data_as(ctypes.c_void_p)

    def run(cov: np.ndarray, sparsities: np.ndarray, tol: float) -> np.ndarray:
        size, count, cov = len(cov), len(sparsities), np.ascontiguousarray(cov)
        penalty = 1 - np.eye(size)
        if count == 1:  # QUIC scales the penalty along a path only
            penalty = sparsities[0] * penalty
        theta, inverse = (np.tile(np.eye(size), (count, 1, 1)) for _ in range(2))
        path, report = np.ascontiguousarray(sparsities), [np.zeros(count) for _ in range(3)]
        n_iter = np.zeros(count, np.uint32)
        by_reference = [ctypes.c_uint32(size), ctypes.c_uint32(count), ctypes.c_double(tol), ctypes.c_int32(0)]
        p, length, limit, silent = (ctypes.byref(value) for value in by_reference)
        most = ctypes.byref(ctypes.c_uint32(1000))
        objective, seconds, gap = (pointer(array) for array in report)
        compiled.QUIC(
            ctypes.c_char(b"D" if count == 1 else b"P"), p, pointer(cov), pointer(penalty), length, pointer(path),
            limit, silent, most, pointer(theta), pointer(inverse), objective, seconds, pointer(n_iter), gap,
        )  # fmt: skip
        return theta

    return run


def run_ours(cov: np.ndarray, sparsity: float, tol: float) -> np.ndarray:
    """Solve one matrix; ``tol`` is the gap per variable."""
    return graphical_lasso(torch.from_numpy(cov), sparsity, scale="raw", tol=tol).precision.numpy()


def solvers(args: argparse.Namespace) -> dict[str, Solver]:
    """Return the solvers that are available, ours first."""
    found: dict[str, Solver] = {
        "isice": run_ours,
        "sklearn": run_sklearn,
        "sklearn, default enet_tol": run_sklearn_default,
    }
    if args.quic is not None:
        found["quic"] = quic_solver(args.quic)
    optional = {"gglasso": run_gglasso, "skglm": run_skglm}
    return found | {name: run for name, run in optional.items() if importlib.util.find_spec(name) is not None}


def seconds_of(run: Callable[[], Any]) -> tuple[float, Any]:
    """Return CPU seconds and the result, or the exception."""
    begin = time.process_time()
    try:
        result = run()
    except Exception as error:
        result = error
    return time.process_time() - begin, result


def seconds_at_most(limit: float, run: Callable[[], Any]) -> tuple[float, Any]:
    """Return CPU seconds and the result of a forked process, or infinity beyond the limit."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), math.ceil(limit)))
        sender.send(seconds_of(run))

    process = context.Process(target=work)
    process.start()
    sender.close()
    try:
        found: tuple[float, Any] = receiver.recv()
    except EOFError:
        found = (math.inf, TimeoutError())
    process.join()
    return found


def timed_batch(cell: Cell, cov: Tensor, tol: float) -> float:
    """Return milliseconds per matrix of ours on the batch."""
    seconds, _ = seconds_of(lambda: graphical_lasso(cov, cell.sparsity, scale="raw", tol=tol))
    return 1e3 * seconds / len(cov)


def loosest(solve: Solver, cell: Cell, target: float, limit: float, first: float) -> dict[str, Any]:
    """Return the loosest tolerance that solves the first matrix to within ``target``·D.

    ``first`` is the loosest one to try.
    """
    matrix = cell.cov[0].numpy()
    for tol in (t for t in LADDER if t <= (target if solve is run_ours else first)):
        run = functools.partial(solve, matrix, cell.sparsity, tol)
        seconds, answer = seconds_of(run) if solve is run_ours else seconds_at_most(limit, run)
        error = Cell(cell.cov[:1], cell.sparsity, cell.optimum[:1]).error([answer])
        found = {"tol": tol, "ms": 1e3 * seconds, "error": error, "reached": error <= target}
        if found["reached"] or seconds > limit:
            break
    return found


def compare(
    found: dict[str, Solver], cell: Cell, cov: Tensor, row: dict[str, Any], firsts: dict[str, float], args: Any
) -> dict[str, Any]:
    """Time all solvers on one matrix, each at the setting that suffices, and ours on the batch."""
    settings = {
        name: loosest(solve, cell, row["target"], args.limit, firsts.get(name, LADDER[0]))
        for name, solve in found.items()
    }
    matrix, batch_ms = cell.cov[0].numpy(), math.inf
    # The attempts of peers were in forked processes, whose first CPU time may read as zero.
    repeats = {
        name: SHORT_REPEATS if setting["ms"] < SHORT else 1
        for name, setting in settings.items()
        if setting["reached"] and setting["ms"] < 1e3 * MAX_REPEATED
    }
    for name in repeats:
        settings[name]["ms"] = math.inf
    for _ in range(args.rounds if len(matrix) <= 500 else 1):
        for name, count in repeats.items():
            for _ in range(count):
                setting = settings[name]
                seconds, _ = seconds_of(lambda n=name, s=setting: found[n](matrix, cell.sparsity, s["tol"]))
                setting["ms"] = min(setting["ms"], 1e3 * seconds)
        if len(cov) > 1:
            batch_ms = min(batch_ms, timed_batch(cell, cov, settings["isice"]["tol"]))
    return {"solvers": settings, "batch_ms": batch_ms}


def optimum(cov: Tensor, sparsity: float) -> Cell:
    """Return one matrix with its minimum, to 1e-8·D."""
    exact = graphical_lasso(cov, sparsity, scale="raw", tol=1e-8).precision
    return Cell(cov, sparsity, [objective(cov[0].numpy(), sparsity, exact[0].numpy())])


def rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure the grid of sizes, matrices, λ and targets."""
    from threadpoolctl import threadpool_limits

    available = solvers(args)
    for solve in available.values():  # load every library before the limit of threads
        solve(np.eye(3) + 0.5, 0.1, 1e-2)
    torch.set_num_threads(1)
    threadpool_limits(1)
    too_slow: set[tuple[str, str, float]] = set()
    for size, (kind, make) in itertools.product(args.sizes, (KINDS | SLOW_KINDS).items()):
        if kind not in args.kinds or (size > MAX_BATCHED and kind in SLOW_KINDS):
            continue
        if size > MAX_SLOW_PEERS:
            available = {name: solve for name, solve in available.items() if name not in SLOW_PEERS}
        cov = make(size, args.batch if size <= MAX_BATCHED else 1, args.seed)
        for sparsity in SPARSITIES:
            cell = optimum(cov[:1], sparsity)
            found = {name: solve for name, solve in available.items() if (name, kind, sparsity) not in too_slow}
            firsts: dict[str, float] = {}
            for target in TARGETS:
                row: dict[str, Any] = {"kind": kind, "size": size, "sparsity": sparsity, "target": target}
                row |= {"batch": len(cov), "limit_s": args.limit, "load": os.getloadavg()[0]}
                row |= compare(found, cell, cov, row, firsts, args)
                firsts = {name: s["tol"] for name, s in row["solvers"].items()}
                times = {name: f"{s['ms']:.1f}{'' if s['reached'] else '*'}" for name, s in row["solvers"].items()}
                print(kind, size, sparsity, target, times, f"batch {row['batch_ms']:.1f}", flush=True)
                yield row
                slow = {name for name, s in row["solvers"].items() if s["ms"] > 1e3 * args.limit} - {"isice"}
                too_slow |= {(name, kind, sparsity) for name in slow}
                found = {name: solve for name, solve in found.items() if name not in slow}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quic", type=Path, help="QUIC of skggm as a shared library")
    parser.add_argument("--sizes", type=int, nargs="+", default=[50, 200, 500, 1000])
    parser.add_argument("--kinds", nargs="+", default=[*KINDS, *SLOW_KINDS])
    parser.add_argument("--batch", type=int, default=8, help="matrices per batch of ours")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=5.0, help="seconds after which no tighter tolerance is tried")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--append", action="store_true", help="keep the rows of other cells")
    parser.add_argument("--out", type=Path, default=RESULTS / "graphical_lasso_peers.json")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # convergence warnings of peers; their accuracy is measured
    record: dict[str, Any] = {"title": "graphical lasso against its peers", "seed": args.seed, "rounds": args.rounds}
    record |= environment("cpu")
    kept = json.loads(args.out.read_text(encoding="utf-8"))["rows"] if args.append else []
    kept = [row for row in kept if row["size"] not in args.sizes or row["kind"] not in args.kinds]
    measured: list[Any] = []
    for row in rows(args):
        measured.append(finite(row | {"commit": record["commit"]}))
        record["rows"] = sorted(
            kept + measured, key=lambda row: (row["size"], [*KINDS, *SLOW_KINDS].index(row["kind"]))
        )
        args.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
