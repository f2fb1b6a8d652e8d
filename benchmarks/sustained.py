"""iSICE on a GPU that has been computing for seconds: a GPU that draws all the power it may slows its clock down.

Usage: python benchmarks/sustained.py [--authors SICE.py] [--seconds 4] [--out FILE]

Each code runs forward and backward again and again, after a rest. "Rested" is the median of its first runs, "under
load" that of the second half of the time; clock and power are read from nvidia-smi during that half. The codes are
those of gpu_speed.py.
"""

import argparse
import csv
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.gpu_speed import Function, Shape, authors_layer, make_features, make_layer, value_and_gradient
from benchmarks.measure import RESULTS, times_ms, write_results

AT_ONCE = 4  # runs that are queued one behind the other; the first ones are the rested ones


def start_reading(device: torch.device) -> subprocess.Popen[str] | None:
    """Begins to ask for clock and power of the GPU, which takes a while; None where nobody can tell."""
    if device.type != "cuda" or shutil.which("nvidia-smi") is None:
        return None
    which = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
    query = ["nvidia-smi", "-i", which, "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader,nounits"]
    return subprocess.Popen(query, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def finish_reading(process: subprocess.Popen[str] | None) -> dict[str, float]:
    """Clock in MHz and power in W, as far as the driver told them."""
    answer = "" if process is None else process.communicate(timeout=60)[0]
    cells = next(csv.reader([answer]), [])
    found = {}
    for key, cell in zip(("sm_mhz", "power_w"), cells, strict=False):
        try:
            found[key] = float(cell)
        except ValueError:  # "[N/A]"
            continue
    return found


def measure(run: Callable[[], object], device: torch.device, seconds: float) -> dict[str, float]:
    """Times of ``run`` at the beginning and after half of ``seconds``, with clock and power then."""
    times_ms(run, device, 2)
    time.sleep(seconds / 2)
    begin = time.perf_counter()
    rested = times_ms(run, device, AT_ONCE)
    while time.perf_counter() - begin < seconds / 2:
        times_ms(run, device, AT_ONCE)
    reading, late = start_reading(device), times_ms(run, device, AT_ONCE)
    while time.perf_counter() - begin < seconds:
        late += times_ms(run, device, AT_ONCE)
    row = {"rested_ms": statistics.median(rested), "sustained_ms": statistics.median(late), "late_runs": len(late)}
    return row | finish_reading(reading)


def codes(args: argparse.Namespace) -> Iterator[tuple[str, str, Function]]:
    """Backend, mode and function of every row."""
    ours = make_layer("isice", args.shape.channels, args.seed).to(args.device)
    for mode in ("highest", "medium"):
        if args.authors:
            theirs = authors_layer(args.authors, args.shape.channels).to(args.device)
            yield "authors", mode, lambda x, layer=theirs: layer(x).squeeze(-1)
        yield "auto", mode, ours


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--authors", type=Path, help="the file src/representation/SICE.py of the paper's repository")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long each code runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="tiny sizes, for a test of the script")
    parser.add_argument("--out", type=Path, default=RESULTS / "sustained.json")
    args = parser.parse_args(argv)
    args.shape = Shape(3, 16, 4) if args.small else Shape(64, 512, 28)
    device, rows = torch.device(args.device), []
    x = make_features(args.shape, args.seed).to(device)
    cotangent = torch.randn(args.shape.batch, args.shape.channels * (args.shape.channels + 1) // 2, device=device)
    for backend, mode, function in codes(args):
        if device.type == "cuda":
            torch.set_float32_matmul_precision(mode)
        row: dict[str, Any] = {"backend": backend, "mode": mode, **args.shape._asdict(), "seconds": args.seconds}
        rows.append(row | measure(lambda f=function: value_and_gradient(f, x, cotangent), device, args.seconds))
        print({key: round(value, 2) if isinstance(value, float) else value for key, value in rows[-1].items()})
    options = [f"--{key}" for key in ("small",) if getattr(args, key)] + ["--authors FILE"] * bool(args.authors)
    command = " ".join(["python benchmarks/sustained.py", *options, f"--seconds {args.seconds:g}"])
    write_results(args.out, "iSICE under load", command, args.seed, device, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
