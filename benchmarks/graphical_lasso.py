"""The exact solver against its peers at matched accuracy (CPU), and in batches (CUDA).

Usage:
    python benchmarks/graphical_lasso.py [--sizes 32 64 128 256] [--peers sklearn gglasso] [--out FILE]
    python benchmarks/graphical_lasso.py --gpu [--out FILE]

CPU: same matrices, same objective, CPU time of one thread, rounds interleaved, the shortest of each. A peer runs at
the loosest of its tolerances whose answer is truly within the target of the optimum; the solver then has to certify the
accuracy that the peer reached, or the target if that is tighter (but not below 1e-9·D). A peer that never gets there is
"short", and its time is that of its last attempt. Without a target (None) the peer runs at its own default tolerance,
and the solver at what that reached, or at 1e-4·D where it fell short of that. The optimum is the solver's own,
certified to 1e-10·D.
CUDA: medians of CUDA events, peak memory above what was allocated before the call.
"""

import argparse
import contextlib
import importlib.metadata
import io
import json
import math
import platform
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isice.ops.graphical_lasso import graphical_lasso

RESULTS = Path(__file__).parent / "results"
SPARSITIES = (0.3, 0.1, 0.03, 0.01)
TARGETS = (1e-4, 1e-7, None)
PEER_TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6)


def relu_like(size: int, batch: int, seed: int) -> Tensor:
    """Singular correlation matrices: rectified features of few factors at D/2 positions."""
    generator = torch.Generator().manual_seed(seed)
    factors, samples = size // 4, size // 2
    loadings = torch.randn(batch, size, factors, generator=generator, dtype=torch.float64) / math.sqrt(factors)
    x = loadings @ torch.randn(batch, factors, samples, generator=generator, dtype=torch.float64)
    return _correlation((x + torch.randn(batch, size, samples, generator=generator, dtype=torch.float64)).relu())


def sparse_model(size: int, batch: int, seed: int) -> Tensor:
    """Correlation matrices of 4·D samples from a model with about two edges per variable."""
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
    """What everyone minimises; ∞ where the answer is not positive definite."""
    precision = 0.5 * (precision + precision.T)
    sign, logdet = np.linalg.slogdet(precision)
    off = np.abs(precision).sum() - np.abs(np.diag(precision)).sum()
    positive = sign > 0 and np.linalg.eigvalsh(precision)[0] > 0
    return float((cov * precision).sum() - logdet + sparsity * off) if positive else math.inf


def run_sklearn(cov: np.ndarray, sparsity: float, tol: float) -> np.ndarray:
    """scikit-learn's coordinate descent; its default tolerance is 1e-4."""
    from sklearn.covariance import graphical_lasso as solve

    return solve(cov, sparsity, tol=tol, enet_tol=min(1e-4, tol), max_iter=100)[1]


def run_gglasso(cov: np.ndarray, sparsity: float, tol: float) -> np.ndarray:
    """GGLasso's single-graph ADMM."""
    from gglasso.solver.single_admm_solver import ADMM_SGL

    with contextlib.redirect_stdout(io.StringIO()):
        answer = ADMM_SGL(cov, sparsity, np.eye(len(cov)), tol=tol * 1e-2, rtol=tol * 1e-2, max_iter=5000)
    return answer[0]["Theta"]


PEERS: dict[str, Callable[[np.ndarray, float, float], np.ndarray]] = {"sklearn": run_sklearn, "gglasso": run_gglasso}


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Milliseconds and result; an exception is the result, so that it can be reported."""
    begin = time.process_time()
    try:
        result = run()
    except Exception as error:
        result = error
    return 1e3 * (time.process_time() - begin), result


def loosest_sufficient(
    peer: str, cov: np.ndarray, sparsity: float, optimum: float, target: float | None
) -> dict[str, Any]:
    """The peer's loosest tolerance that reaches ``target``·D (None: its default), or how near it came."""
    attempt: dict[str, Any] = {}
    tolerances, target = (PEER_TOLERANCES, target) if target is not None else ((1e-4,), 1e-4)
    for tol in tolerances:
        ms, answer = timed(lambda tol=tol: PEERS[peer](cov, sparsity, tol))
        if isinstance(answer, Exception):
            return {"tol": tol, "ms": ms, "error": math.inf, "reached": False, "raised": type(answer).__name__}
        error = (objective(cov, sparsity, answer) - optimum) / len(cov)
        attempt = {"tol": tol, "ms": ms, "error": max(error, 0.0), "reached": error <= target}
        if attempt["reached"] or ms > 20_000:
            break
    return attempt


def compare(
    cov: Tensor, sparsity: float, peer: str, target: float | None, optimum: float, rounds: int
) -> dict[str, Any]:
    """One cell: the peer at its best, the solver at that accuracy, the ratio of their times."""
    matrix, size = cov.numpy(), len(cov)
    theirs = loosest_sufficient(peer, matrix, sparsity, optimum, target)
    tol = min(target or 1e-4, max(theirs["error"], 1e-9))
    ours_ms, peer_ms = [], [theirs["ms"]]
    for _ in range(rounds):
        ms, result = timed(lambda: graphical_lasso(cov, sparsity, tol=tol))
        ours_ms.append(ms)
        if theirs["ms"] < 2000:
            peer_ms.append(timed(lambda: PEERS[peer](matrix, sparsity, theirs["tol"]))[0])
    error = (objective(matrix, sparsity, result.precision.numpy()) - optimum) / size
    ours = {"tol": tol, "ms": min(ours_ms), "error": max(error, 0.0), "gap": float(result.gap) / size}
    ours["n_iter"] = int(result.n_iter)
    return {"ours": ours, "theirs": {**theirs, "ms": min(peer_ms)}, "ratio": min(peer_ms) / min(ours_ms)}


def cpu_rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The grid of matrices, λ, targets and peers."""
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    threadpool_limits(1)
    for peer in args.peers:  # the import is not what is timed
        PEERS[peer](np.eye(3) + 0.5, 0.1, 1e-2)
    for kind, make in KINDS.items():
        for size in args.sizes:
            cov = make(size, 1, args.seed)[0]
            for sparsity in SPARSITIES:
                exact = graphical_lasso(cov, sparsity, tol=1e-10)
                optimum = objective(cov.numpy(), sparsity, exact.precision.numpy())
                for peer in args.peers:
                    for target in TARGETS:
                        cell = {"kind": kind, "size": size, "sparsity": sparsity, "target": target, "peer": peer}
                        row = {**cell, **compare(cov, sparsity, peer, target, optimum, args.rounds)}
                        print(cpu_line(row), flush=True)
                        yield row


def cpu_line(row: dict[str, Any]) -> str:
    """One row for the terminal; errors are suboptimality per variable."""
    ours, theirs = row["ours"], row["theirs"]
    return (
        f"{row['kind']:6} D={row['size']:3} λ={row['sparsity']:<5} {row['target'] or 'default':<7} {row['peer']}: "
        f"{theirs['ms']:8.1f} ms ({theirs['error']:.0e}{'' if theirs['reached'] else ' short'}), "
        f"ours {ours['ms']:7.1f} ms ({ours['error']:.0e}), ×{row['ratio']:.2f}"
    )


def gpu_rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Batches on CUDA in float32: forward, forward and backward, memory, certificate."""
    cells = [("relu", 256, 128, 0.1), ("sparse", 256, 128, 0.1), ("relu", 256, 128, 0.03), ("relu", 256, 128, 0.01)]
    cells += [("relu", 256, 256, 0.1), ("relu", 128, 128, 0.1), ("relu", 64, 128, 0.1), ("relu", 32, 128, 0.1)]
    for matmul in ("highest", "high"):
        torch.set_float32_matmul_precision(matmul)
        for kind, size, batch, sparsity in cells:
            cov = KINDS[kind](size, batch, args.seed).float().cuda()
            row = {"kind": kind, "size": size, "batch": batch, "sparsity": sparsity, "matmul": matmul}
            row.update(_gpu_cell(cov, sparsity, args.rounds))
            print(
                f"{matmul:7} {kind:6} D={size:3} B={batch:3} λ={sparsity:<5} forward {row['forward_ms']:7.2f} ms, with "
                f"backward {row['forward_backward_ms']:7.2f} ms, {row['forward_floats']:.1f} / "
                f"{row['forward_backward_floats']:.1f} D² floats, iterations {row['n_iter']}, gap {row['gap']:.1e}·D",
                flush=True,
            )
            yield row


def _gpu_cell(cov: Tensor, sparsity: float, rounds: int) -> dict[str, Any]:
    leaf = cov.clone().requires_grad_()
    weights = torch.randn(cov.shape[-2:], device="cuda")

    def backward() -> None:
        leaf.grad = None
        (graphical_lasso(leaf, sparsity).precision * weights).sum().backward()

    result = graphical_lasso(cov, sparsity)
    row: dict[str, Any] = {"n_iter": int(result.n_iter.max()), "gap": float(result.gap.max()) / cov.shape[-1]}
    product = torch.bmm(result.precision.double(), result.covariance.double())
    row["inverse_error"] = float((product - torch.eye(cov.shape[-1], device="cuda")).abs().max())
    del result, product
    for name, run in (("forward", lambda: graphical_lasso(cov, sparsity)), ("forward_backward", backward)):
        row[f"{name}_ms"] = _median_cuda_ms(run, rounds)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        row[f"{name}_floats"] = (torch.cuda.max_memory_allocated() - before) / 4 / cov.numel()
    return row


def _median_cuda_ms(run: Callable[[], object], rounds: int) -> float:
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


def environment() -> dict[str, Any]:
    """Commit, versions and hardware; needs nothing but torch, so that it runs on a bare GPU machine."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip() or None
    versions = {"python": platform.python_version()}
    for name in ("torch", "numpy", "scikit-learn", "gglasso"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    hardware = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, one thread, {platform.machine()}"
    return {"commit": commit, "versions": versions, "hardware": hardware}


def finite(value: Any) -> Any:
    """JSON has no infinity: what is not finite becomes null."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 64, 128, 256])
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=["sklearn"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # the peers' convergence warnings; what they reached is measured here
    rows = list(gpu_rows(args) if args.gpu else cpu_rows(args))
    out = args.out or RESULTS / f"graphical_lasso_{'gpu' if args.gpu else 'cpu'}.json"
    record = {"title": "graphical lasso", "seed": args.seed, **environment(), "rows": [finite(row) for row in rows]}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
