"""Compare the graphical lasso with scikit-learn, GGLasso and cvxpylayers at matched accuracy.

Usage:
    python benchmarks/graphical_lasso.py [--sizes 32 64 128 256] [--peers sklearn gglasso]
    python benchmarks/graphical_lasso.py --device cuda [--out FILE]
    python benchmarks/graphical_lasso.py --layer [--out FILE]

CPU: the same matrices and objective for all; CPU time of one thread per matrix; rounds are
interleaved and the shortest counts. Each side runs at the loosest tolerance that suffices:

- the peer: the loosest whose answers are all within the target of the optimum,
  measured by the objective;
- the solver: the loosest whose answers are as accurate as the peer's worst one (at least 1e-9·D);
- a peer that misses the target is marked "short", and its last attempt is timed;
- without a target (None) the peer runs at its default tolerance, the solver at the
  accuracy that gave, or at 1e-4·D.

The optimum is the solver's own, certified to 1e-10·D.

CUDA: batches in float32; medians of CUDA events; peak memory beyond what was allocated before the
call; and the time per matrix of scikit-learn on one thread of the same machine, to 1e-4·D.

--layer: value and gradient of a cvxpylayers layer for small D.
"""

import argparse
import contextlib
import dataclasses
import functools
import importlib.metadata
import io
import itertools
import json
import math
import os
import platform
import subprocess
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isice.ops.graphical_lasso import GraphicalLassoResult, graphical_lasso

RESULTS = Path(__file__).parent / "results"
SPARSITIES = (0.3, 0.1, 0.03, 0.01)
TARGETS = (1e-4, 1e-7, None)
PEER_TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6)


def relu_like(size: int, batch: int, seed: int) -> Tensor:
    """Return singular correlation matrices of rectified features: D/4 factors, D/2 positions."""
    generator = torch.Generator().manual_seed(seed)
    factors, samples = size // 4, size // 2
    loadings = torch.randn(batch, size, factors, generator=generator, dtype=torch.float64) / math.sqrt(factors)
    x = loadings @ torch.randn(batch, factors, samples, generator=generator, dtype=torch.float64)
    return _correlation((x + torch.randn(batch, size, samples, generator=generator, dtype=torch.float64)).relu())


def sparse_model(size: int, batch: int, seed: int) -> Tensor:
    """Return correlation matrices of 4·D samples from a model with about two edges per variable."""
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, size, size)
    edges = torch.rand(shape, generator=generator) < 2 / size
    upper = torch.where(edges, torch.rand(shape, generator=generator, dtype=torch.float64) - 0.5, 0.0).triu(1)
    precision = upper + upper.mT
    precision = precision + torch.diag_embed(precision.abs().sum(-1) + 0.5)
    noise = torch.randn(batch, size, 4 * size, generator=generator, dtype=torch.float64)
    return _correlation(torch.linalg.solve_triangular(torch.linalg.cholesky(precision).mT, noise, upper=True))


def _correlation(x: Tensor) -> Tensor:
    x = x - x.mean(-1, keepdim=True)
    x = x / x.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-12)
    cov = x @ x.mT / x.shape[-1]
    cov.diagonal(dim1=-2, dim2=-1).fill_(1.0)
    return cov


KINDS = {"sparse": sparse_model, "relu": relu_like}


def objective(cov: np.ndarray, sparsity: float, precision: np.ndarray) -> float:
    """Return the objective; ∞ if ``precision`` is not positive definite."""
    precision = 0.5 * (precision + precision.T)
    sign, logdet = np.linalg.slogdet(precision)
    off = np.abs(precision).sum() - np.abs(np.diag(precision)).sum()
    positive = sign > 0 and np.linalg.eigvalsh(precision)[0] > 0
    return float((cov * precision).sum() - logdet + sparsity * off) if positive else math.inf


def run_sklearn(cov: np.ndarray, sparsity: float, tol: float) -> np.ndarray:
    """Solve by scikit-learn's coordinate descent, whose default tolerance is 1e-4."""
    from sklearn.covariance import graphical_lasso as solve

    return solve(cov, sparsity, tol=tol, enet_tol=0.1 * tol / len(cov), max_iter=100)[1]


def run_gglasso(cov: np.ndarray, sparsity: float, tol: float) -> np.ndarray:
    """Solve by GGLasso's single-graph ADMM."""
    from gglasso.solver.single_admm_solver import ADMM_SGL

    with contextlib.redirect_stdout(io.StringIO()):
        answer = ADMM_SGL(cov, sparsity, np.eye(len(cov)), tol=tol * 1e-2, rtol=tol * 1e-2, max_iter=5000)
    return answer[0]["Theta"]


PEERS: dict[str, Callable[[np.ndarray, float, float], np.ndarray]] = {"sklearn": run_sklearn, "gglasso": run_gglasso}


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Return milliseconds and result; an exception is returned as the result."""
    begin = time.process_time()
    try:
        result = run()
    except Exception as error:
        result = error
    return 1e3 * (time.process_time() - begin), result


@dataclasses.dataclass(frozen=True)
class Cell:
    """Matrices (B, D, D), λ and the minimum of the objective for each of them."""

    cov: Tensor
    sparsity: float
    optimum: list[float]

    @classmethod
    def of(cls, cov: Tensor, sparsity: float) -> "Cell":
        exact = graphical_lasso(cov, sparsity, scale="raw", tol=1e-10).precision.numpy()
        return cls(cov, sparsity, [objective(s, sparsity, theta) for s, theta in zip(cov.numpy(), exact, strict=True)])

    def error(self, answers: Iterable[Any]) -> float:
        """Return the largest suboptimality of the answers per variable; ∞ for an exception."""
        size, worst = self.cov.shape[-1], 0.0
        for matrix, optimum, answer in zip(self.cov.numpy(), self.optimum, answers, strict=True):
            failed = isinstance(answer, Exception)
            worst = max(worst, math.inf if failed else (objective(matrix, self.sparsity, answer) - optimum) / size)
        return worst

    def peer(self, name: str, tol: float) -> tuple[float, list[Any]]:
        """Return milliseconds per matrix and the answers (or exceptions) of a peer."""
        runs = [timed(functools.partial(PEERS[name], matrix, self.sparsity, tol)) for matrix in self.cov.numpy()]
        return sum(ms for ms, _ in runs) / len(runs), [answer for _, answer in runs]

    def ours(self, tol: float) -> tuple[float, GraphicalLassoResult]:
        """Return milliseconds per matrix and the result of the solver for the whole batch."""
        ms, result = timed(lambda: graphical_lasso(self.cov, self.sparsity, scale="raw", tol=tol))
        if isinstance(result, Exception):
            raise result
        return ms / len(self.cov), result


def loosest_sufficient(cell: Cell, peer: str, target: float | None) -> dict[str, Any]:
    """Find the peer's loosest tolerance that reaches ``target``·D (None: use its default)."""
    attempt: dict[str, Any] = {}
    tolerances, target = (PEER_TOLERANCES, target) if target is not None else ((1e-4,), 1e-4)
    for tol in tolerances:
        ms, answers = cell.peer(peer, tol)
        raised = sum(isinstance(answer, Exception) for answer in answers)
        error = cell.error(answers)
        attempt = {"tol": tol, "ms": ms, "error": error, "reached": error <= target, "raised": raised}
        if attempt["reached"] or ms > 20_000:
            break
    return attempt


def loosest_of_ours(cell: Cell, target: float, wanted: float) -> float:
    """Find the loosest tolerance up to ``target`` whose suboptimality is within ``wanted``·D."""
    for quarter in itertools.count():
        tol = target * 10 ** (-quarter / 4)
        # A certificate within ``wanted`` suffices; otherwise judge by the
        # objective, as for the peer.
        if tol <= wanted or cell.error(cell.ours(tol)[1].precision.numpy()) <= wanted:
            return max(tol, 1e-9) if tol > wanted else max(wanted, 1e-9)
    raise AssertionError


def compare(cell: Cell, peer: str, target: float | None, rounds: int) -> dict[str, Any]:
    """Time the peer at its best tolerance and the solver at the same accuracy."""
    theirs = loosest_sufficient(cell, peer, target)
    target = target or 1e-4
    tol = loosest_of_ours(cell, target, min(target, max(theirs["error"], 1e-9)))
    ours_ms, peer_ms = [], [theirs["ms"]]
    for _ in range(rounds):
        ms, result = cell.ours(tol)
        ours_ms.append(ms)
        if theirs["ms"] < 300:
            peer_ms.append(cell.peer(peer, theirs["tol"])[0])
    size = cell.cov.shape[-1]
    ours = {"tol": tol, "ms": min(ours_ms), "error": cell.error(result.precision.numpy())}
    ours |= {"gap": float(result.gap.max()) / size, "n_iter": int(result.n_iter.max())}
    return {"ours": ours, "theirs": {**theirs, "ms": min(peer_ms)}, "ratio": min(peer_ms) / min(ours_ms)}


def one_thread(peers: Iterable[str]) -> None:
    """Limit all libraries to one thread; load the peers first, so that it applies to them."""
    from threadpoolctl import threadpool_limits

    for peer in peers:
        PEERS[peer](np.eye(3) + 0.5, 0.1, 1e-2)
    torch.set_num_threads(1)
    threadpool_limits(1)


def cpu_rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure the grid of matrices, λ, targets and peers."""
    one_thread(args.peers)
    for kind, make in KINDS.items():
        for size in args.sizes:
            cov = make(size, max(1, min(args.batch, 1024 // size)), args.seed)
            for sparsity in SPARSITIES:
                cell = Cell.of(cov, sparsity)
                for peer, target in itertools.product(args.peers, TARGETS):
                    row: dict[str, Any] = {"kind": kind, "size": size, "sparsity": sparsity, "batch": len(cov)}
                    row |= {"target": target, "peer": peer, **compare(cell, peer, target, args.rounds)}
                    print(cpu_line(row), flush=True)
                    yield row


def cpu_line(row: dict[str, Any]) -> str:
    """Format a row for the terminal; errors are suboptimality per variable."""
    ours, theirs = row["ours"], row["theirs"]
    return (
        f"{row['kind']:6} D={row['size']:3} λ={row['sparsity']:<5} {row['target'] or 'default':<7} {row['peer']}: "
        f"{theirs['ms']:8.1f} ms ({theirs['error']:.0e}{'' if theirs['reached'] else ' short'}), "
        f"ours {ours['ms']:7.1f} ms ({ours['error']:.0e}), ×{row['ratio']:.2f}"
    )


def gpu_rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure float32 batches on CUDA: time, memory, gap, and scikit-learn's throughput."""
    cells = [("relu", 256, 128, 0.1), ("sparse", 256, 128, 0.1), ("relu", 256, 128, 0.03), ("relu", 256, 128, 0.01)]
    cells += [("relu", 256, 256, 0.1), ("relu", 128, 128, 0.1), ("relu", 64, 128, 0.1), ("relu", 32, 128, 0.1)]
    one_thread(["sklearn"])
    peers: dict[tuple[str, int, float], dict[str, Any]] = {}
    for matmul, (kind, size, batch, sparsity) in itertools.product(("highest", "high"), cells):
        torch.set_float32_matmul_precision(matmul)
        cov = KINDS[kind](size, batch, args.seed)
        row: dict[str, Any] = {"kind": kind, "size": size, "batch": batch, "sparsity": sparsity, "matmul": matmul}
        row |= gpu_cell(cov.float().cuda(), sparsity, args.rounds)
        key = kind, size, sparsity
        if key not in peers:
            peers[key] = loosest_sufficient(Cell.of(cov[:4], sparsity), "sklearn", 1e-4)
        row |= {"sklearn": peers[key], "throughput_ratio": peers[key]["ms"] * batch / row["forward_ms"]}
        print(gpu_line(row), flush=True)
        yield row


def gpu_line(row: dict[str, Any]) -> str:
    """Format a row for the terminal."""
    cell = f"{row['matmul']:7} {row['kind']:6} D={row['size']:3} B={row['batch']:3} λ={row['sparsity']:<5}"
    times = f"forward {row['forward_ms']:7.2f} ms, with backward {row['forward_backward_ms']:7.2f} ms"
    memory = f"{row['forward_floats']:.1f} / {row['forward_backward_floats']:.1f} D² floats"
    rest = f"{row['n_iter']} iterations, gap {row['gap']:.1e}·D, ×{row['throughput_ratio']:.0f} scikit-learn"
    return f"{cell} {times}, {memory}, {rest}"


def gpu_cell(cov: Tensor, sparsity: float, rounds: int) -> dict[str, Any]:
    """Measure one batch: medians of CUDA events, and peak memory in floats per entry of ``cov``."""
    leaf = cov.clone().requires_grad_()
    weights = torch.randn(cov.shape[-2:], device="cuda")
    solve = functools.partial(graphical_lasso, sparsity=sparsity, scale="raw", tol=1e-4, polish=False)

    def backward() -> None:
        leaf.grad = None
        (solve(leaf).precision * weights).sum().backward()

    result = solve(cov)
    row: dict[str, Any] = {"n_iter": int(result.n_iter.max()), "gap": float(result.gap.max()) / cov.shape[-1]}
    product = torch.bmm(result.precision.double(), result.covariance.double())
    row["inverse_error"] = float((product - torch.eye(cov.shape[-1], device="cuda")).abs().max())
    del result, product
    for name, run in (("forward", lambda: solve(cov)), ("forward_backward", backward)):
        row[f"{name}_ms"] = median_cuda_ms(run, rounds)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        row[f"{name}_floats"] = (torch.cuda.max_memory_allocated() - before) / 4 / cov.numel()
    return row


def median_cuda_ms(run: Callable[[], object], rounds: int) -> float:
    """Return the median of CUDA events after one warm-up run."""
    run()
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def layer_rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Time value and gradient of one matrix, by the solver and by cvxpylayers, on one thread."""
    one_thread([])
    for size in (8, 16, 24):
        cov, sparsity = sparse_model(size, 1, args.seed)[0], 0.1
        weights = torch.randn(size, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        row: dict[str, Any] = {"size": size, "sparsity": sparsity}
        gradients = {}
        for name, solve in (("ours", our_layer(sparsity)), ("cvxpylayers", cvxpy_layer(size, sparsity))):
            for _ in range(args.rounds):
                leaf = cov.clone().requires_grad_()
                forward_ms, value = timed(functools.partial(solve, leaf))
                backward_ms, gradient = timed(functools.partial(torch.autograd.grad, (value * weights).sum(), leaf))
                before = row.get(name, {"forward_ms": math.inf, "backward_ms": math.inf})
                times = {"forward_ms": forward_ms, "backward_ms": backward_ms}
                row[name] = {key: min(before[key], times[key]) for key in times}
            gradients[name] = 0.5 * (gradient[0] + gradient[0].mT)
        row["difference"] = float((gradients["ours"] - gradients["cvxpylayers"]).norm() / gradients["ours"].norm())
        print(row, flush=True)
        yield row


def our_layer(sparsity: float) -> Callable[[Tensor], Tensor]:
    """Return the solver at the accuracy that exact gradients need."""
    return lambda cov: graphical_lasso(cov, sparsity, scale="raw", tol=1e-10).precision


def cvxpy_layer(size: int, sparsity: float) -> Callable[[Tensor], Tensor]:
    """Return the same problem as a cvxpylayers layer."""
    import cvxpy as cp
    from cvxpylayers.torch import CvxpyLayer

    theta, parameter = cp.Variable((size, size), PSD=True), cp.Parameter((size, size))
    penalty = sparsity * cp.sum(cp.abs(cp.multiply(1 - np.eye(size), theta)))
    problem = cp.Problem(cp.Minimize(cp.sum(cp.multiply(parameter, theta)) - cp.log_det(theta) + penalty))
    layer = CvxpyLayer(problem, parameters=[parameter], variables=[theta])
    return lambda cov: layer(cov, solver_args={"eps": 1e-9, "max_iters": 200_000})[0]


def environment(device: str) -> dict[str, Any]:
    """Return commit, versions and hardware, with torch as the only dependency."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=12", "--dirty=+dirty"]
    commit = os.environ.get("ISICE_COMMIT")
    with contextlib.suppress(OSError):
        commit = commit or subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip() or None
    versions = {"python": platform.python_version()}
    for name in ("torch", "numpy", "scikit-learn", "gglasso", "skglm", "cvxpy", "cvxpylayers"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    hardware = torch.cuda.get_device_name() if device == "cuda" else f"CPU, one thread, {platform.machine()}"
    return {"commit": commit, "versions": versions, "hardware": hardware}


def finite(value: Any) -> Any:
    """Replace non-finite floats by None, since JSON has no infinity."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--layer", action="store_true", help="compare value and gradient with cvxpylayers")
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 64, 128, 256])
    parser.add_argument("--batch", type=int, default=8, help="matrices per batch (at most 1024/D)")
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=["sklearn"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # convergence warnings of peers; their accuracy is measured
    name, rows = (
        ("layer", layer_rows) if args.layer else ("gpu", gpu_rows) if args.device == "cuda" else ("cpu", cpu_rows)
    )
    found = [finite(row) for row in rows(args)]
    out = args.out or RESULTS / f"graphical_lasso_{name}.json"
    record = {"title": "graphical lasso", "seed": args.seed, **environment(args.device), "rows": found}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
