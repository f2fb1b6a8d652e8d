"""Measure the pooling sice on features of a network: time, duality gaps, iterations and CG steps.

Usage: python benchmarks/sice_layer.py [--features FILE.npy] [--specs "sice(ridge=1.0)" …]
                                       [--batch 64] [--repeats 10] [--out FILE]

FILE.npy has features (B, C, N) with N a square number, as network_features.py writes them; the
first ``batch`` images are taken. Without it, features are made alike: C/4 random maps, smoothed
over 3×3 positions, mixed at random into C channels, and rectified, so that maps are singular and
share a large common factor.
"""

import argparse
import math
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.measure import RESULTS, forward_backward, median_ms, peak_mib, write_results
from isice.ops.covariance import covariance
from isice.ops.graphical_lasso import autograd, graphical_lasso, polish
from isice.pooling import create_pooling
from isice.pooling.sice import SICE

SPECS = [
    "sice",
    "sice(tol=0.001)",
    "sice(tol=0.001, ridge=0.3)",
    "sice(tol=0.001, ridge=1.0)",
    "partial_correlation",
]
CHANNELS, SIDE = 256, 14


def made_features(batch: int, seed: int) -> Tensor:
    """Return singular, rectified features (B, C, H, W) with correlated channels."""
    generator = torch.Generator().manual_seed(seed)
    maps = torch.randn(batch, CHANNELS // 4, SIDE, SIDE, generator=generator)
    mixing = torch.randn(CHANNELS, CHANNELS // 4, generator=generator) + 0.5
    smooth = torch.nn.functional.avg_pool2d(maps, 3, stride=1, padding=1)
    return torch.einsum("ck,bkhw->bchw", mixing, smooth).relu()


def read_features(path: Path, batch: int) -> Tensor:
    """Return the first features of a file as (B, C, H, W) in float32."""
    x = torch.from_numpy(np.load(path)[:batch]).float()
    side = math.isqrt(x.shape[-1])
    if x.ndim != 3 or side**2 != x.shape[-1]:
        raise SystemExit(f"sice_layer: expected features (B, C, N) with N a square number, got {tuple(x.shape)}.")
    return x.unflatten(-1, (side, side))


def solver_counts(layer: SICE, x: Tensor) -> dict[str, Any]:
    """Return gaps per variable, iterations, matrices continued in float64 and CG steps."""
    matrices = layer._matrix(covariance(x))
    options: dict[str, Any] = {"tol": layer.tol, "max_iter": layer.max_iter, "polish": False, "check_input": False}
    with mock.patch.object(autograd, "_continue_in_float64", wraps=autograd._continue_in_float64) as continued:
        result = graphical_lasso(matrices, layer.sparsity, scale="raw", **options)
    with mock.patch.object(polish, "_projected_product", wraps=polish._projected_product) as products:
        forward_backward(layer, x)
    gap, n_iter = result.gap / x.shape[1], result.n_iter
    return {
        "largest_gap_per_variable": float(gap.max()),
        "median_gap_per_variable": float(gap.median()),
        "median_iterations": int(n_iter.median()),
        "largest_iterations": int(n_iter.max()),
        "continued_in_float64": sum(int(call.args[2].sum()) for call in continued.call_args_list),
        "cg_steps": (products.call_count - 1) // 2,  # two products a step and one to begin with
        "density": float((result.precision != 0).float().mean()),
    }


def measure(spec: str, x: Tensor, repeats: int) -> dict[str, Any]:
    """Measure one pooling."""
    layer = create_pooling(spec, x.shape[1]).to(x.device)
    counts = solver_counts(layer, x) if isinstance(layer, SICE) else {}
    with torch.no_grad():
        forward_ms = median_ms(lambda: layer(x), x.device, repeats)
    return {
        "spec": layer.spec,
        "forward_ms": forward_ms,
        "forward_backward_ms": median_ms(lambda: forward_backward(layer, x), x.device, repeats),
        "peak_mib": peak_mib(lambda: forward_backward(layer, x), x.device),
        **counts,
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path)
    parser.add_argument("--specs", nargs="+", default=SPECS)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=RESULTS / "sice_layer.json")
    args = parser.parse_args(argv)
    x = read_features(args.features, args.batch) if args.features else made_features(args.batch, args.seed)
    x = x.to(args.device)
    rows = []
    for spec in args.specs:
        rows.append(measure(spec, x, args.repeats))
        print(rows[-1], flush=True)
    source = "features of a network" if args.features else "made features"
    title = f"sice as a layer, B = {len(x)}, C = {x.shape[1]}, {x.shape[2]}×{x.shape[3]}, {source}"
    # The file's folder belongs to the machine, not to the record.
    given = ["--features", args.features.name] if args.features else []
    specs = ["--specs", *(f"'{spec}'" for spec in args.specs)]
    command = ["python benchmarks/sice_layer.py", *given, *specs, f"--batch {args.batch} --repeats {args.repeats}"]
    write_results(args.out, title, " ".join(command), args.seed, x.device, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
