"""Measure what iSICE computes at its defaults: distance from the inverse, zeros, effect of options.

Usage: python benchmarks/what_isice_computes.py [--out FILE]
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import isice.functional as F
from benchmarks.measure import RESULTS, write_results


def relative_change(after: Tensor, before: Tensor) -> float:
    """Return the mean of ‖after − before‖/‖before‖ over the batch."""
    return float(((after - before).norm(dim=(-2, -1)) / before.norm(dim=(-2, -1))).mean())


def examine(channels: int, side: int, seed: int) -> dict[str, Any]:
    """Measure a batch of four random feature maps with correlated channels, in float64."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(channels, channels, generator=generator, dtype=torch.float64) / channels**0.5
    noise = torch.randn(4, channels, side * side, generator=generator, dtype=torch.float64)
    cov = F.covariance((mixing @ noise).relu())
    sigma = cov / cov.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    start = F.isice(cov, n_iter=0, normalize="none")
    default = F.isice(cov, normalize="none")
    correlation = F.correlation(cov) - torch.eye(channels, dtype=torch.float64)
    return {
        "channels": channels,
        "positions": side * side,
        "inverse_residual": float(F.inverse_residual(sigma, start).mean()),
        "largest_eigenvalue_of_inverse": float(torch.linalg.eigvalsh(start).max()),
        "eigenvalue_cap": 2.25**7,
        "move_by_the_sparse_steps": relative_change(default, start),
        "move_by_five_more_inverse_steps": relative_change(F.isice(cov, normalize="none", n_inverse_iter=12), default),
        "zeros_at_defaults": float(F.zero_fraction(default).mean()),
        "smallest_eigenvalue_eta_1": float(F.smallest_eigenvalue(default).min()),
        "smallest_eigenvalue_eta_5": float(F.smallest_eigenvalue(F.isice(cov, step_size=5.0, normalize="none")).min()),
        "smallest_eigenvalue_eta_20": float(
            F.smallest_eigenvalue(F.isice(cov, step_size=20.0, normalize="none")).min()
        ),
        "lambda_max_on_sigma_scale": float((sigma - torch.diag_embed(sigma.diagonal(dim1=-2, dim2=-1))).abs().max()),
        "lambda_max_on_correlation_scale": float(correlation.abs().max()),
        "mean_abs_entry_divided_by_trace": float(F.isice(cov, preset="paper").abs().mean()),
        "mean_abs_entry_divided_by_sqrt_trace": float(F.isice(cov, preset="official").abs().mean()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS / "what_isice_computes.json")
    args = parser.parse_args()
    rows = [examine(channels, side, args.seed) for channels, side in ((64, 14), (256, 14), (256, 28))]
    for row in rows:
        print("\n".join(f"{key:40s} {value:.4g}" for key, value in row.items()), end="\n\n")
    command = "python benchmarks/what_isice_computes.py"
    write_results(args.out, "what iSICE computes", command, args.seed, torch.device("cpu"), rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
