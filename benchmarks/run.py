"""Time every operation of benchmarks/specs.py whose tests pass.

Usage: python benchmarks/run.py [--only isice …] [--batch 8] [--channels 256] [--out FILE]
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.measure import RESULTS, cost, forward_backward, median_ms, peak_mib, relative_error, write_results
from benchmarks.specs import SPECS, Spec, make_input

ROOT = Path(__file__).resolve().parents[1]


def tests_pass(tests: str) -> bool:
    """Return whether the tests of an operation pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-k", "not inductor", str(ROOT / tests)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0


def measure(name: str, spec: Spec, args: argparse.Namespace) -> dict[str, Any]:
    """Measure an operation and its reference: time, FLOPs, saved memory, error against float64."""
    device = torch.device(args.device)
    x = make_input(spec, args.batch, args.channels, args.side, device, args.seed)
    exact, exact_gradient = forward_backward(spec.reference, x.double())
    row: dict[str, Any] = {"name": name, "batch": args.batch, "channels": args.channels, "side": args.side}
    row["matmul_precision"] = args.matmul_precision
    for label, function in (("op", spec.function), ("reference", spec.reference)):
        value, gradient = forward_backward(function, x)
        row[label] = {
            "forward_ms": median_ms(lambda f=function: f(x), device, args.repeats),
            "forward_backward_ms": median_ms(lambda f=function: forward_backward(f, x), device, args.repeats),
            **cost(function, x),
            "peak_mib": peak_mib(lambda f=function: forward_backward(f, x), device),
            "error": relative_error(value, exact),
            "gradient_error": relative_error(gradient, exact_gradient),
        }
    return row


def show(rows: list[dict[str, Any]], channels: int) -> None:
    """Print the table; products are in units of one D×D×D product."""
    table = Table(title=f"operation (reference in brackets), D = {channels}")
    for column in (
        "op",
        "forward ms",
        "fwd+bwd ms",
        "products fwd",
        "products bwd",
        "saved MiB/image",
        "gradient error",
    ):
        table.add_column(column, justify="left" if column == "op" else "right")
    unit = 2 * channels**3
    for row in rows:
        op, reference = row["op"], row["reference"]
        cells = [("forward_ms", 1, ".1f"), ("forward_backward_ms", 1, ".1f"), ("forward_flops", unit, ".1f")]
        cells += [("backward_flops", unit, ".1f"), ("kept_mib_per_image", 1, ".2f"), ("gradient_error", 1, ".0e")]
        table.add_row(row["name"], *(f"{op[k] / s:{f}} ({reference[k] / s:{f}})" for k, s, f in cells))
    Console().print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=sorted(SPECS), default=sorted(SPECS))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--channels", type=int, default=256)
    parser.add_argument("--side", type=int, default=14)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--matmul-precision", default="highest", choices=("highest", "high", "medium"))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_float32_matmul_precision(args.matmul_precision)
    rows, failed = [], []
    for name in args.only:
        print(f"{name}: tests …", flush=True)
        if not tests_pass(SPECS[name].tests):
            failed.append(name)
            print(f"{name}: its tests fail; not timed. Run {SPECS[name].tests}.", flush=True)
            continue
        rows.append(measure(name, SPECS[name], args))
    show(rows, args.channels)
    out = args.out or RESULTS / f"operations_{args.device}.json"
    command = "python benchmarks/run.py " + " ".join(sys.argv[1:])
    write_results(out, "operations", command.strip(), args.seed, torch.device(args.device), rows)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
