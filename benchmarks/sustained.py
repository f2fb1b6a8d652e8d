"""Measure iSICE under sustained load, when the power limit lowers the clock rate of the GPU.

Usage: python benchmarks/sustained.py [--authors SICE.py] [--seconds 4] [--out FILE]

Each backend of gpu_speed.py idles, then runs forward and backward in a loop. "Rested" is the median
of the first runs, "under load" that of the second half, during which nvidia-smi samples clock rate
and power.
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
from isice.ops._dispatch import kernels_missing

AT_ONCE = 4  # runs queued without synchronisation; the first ones count as rested
REST_S = 3.0
READINGS = ("clocks.sm", "power.draw", "clocks.max.sm", "power.limit")
NAMES = ("sm_mhz", "power_w", "most_sm_mhz", "power_limit_w")


def start_reading(device: torch.device) -> subprocess.Popen[str] | None:
    """Start nvidia-smi, which samples clock rate and power five times a second; None without it."""
    if device.type != "cuda" or shutil.which("nvidia-smi") is None:
        return None
    which = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
    query = ["nvidia-smi", "-i", which, f"--query-gpu={','.join(READINGS)}", "--format=csv,noheader,nounits"]
    return subprocess.Popen([*query, "--loop-ms=200"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def finish_reading(process: subprocess.Popen[str] | None) -> dict[str, float]:
    """Return median clock rate (MHz) and power (W) and their limits, if the driver has them."""
    if process is None:
        return {}
    process.terminate()
    try:
        answer = process.communicate(timeout=10)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return {}
    readings: dict[str, list[float]] = {}
    whole = answer[: answer.rfind("\n") + 1]  # the last line may be cut off
    for cells in csv.reader(whole.splitlines()):
        for name, cell in zip(NAMES, cells, strict=False):
            try:
                readings.setdefault(name, []).append(float(cell))
            except ValueError:  # "[N/A]"
                continue
    return {name: statistics.median(values) for name, values in readings.items() if values}


def measure(run: Callable[[], object], device: torch.device, seconds: float, rest: float) -> dict[str, float]:
    """Time ``run`` at the start and in the second half of ``seconds``, with clock and power."""
    times_ms(run, device, 2)
    time.sleep(rest)
    begin = time.perf_counter()
    rested = times_ms(run, device, AT_ONCE)
    while time.perf_counter() - begin < seconds / 2:
        times_ms(run, device, AT_ONCE)
    reading = start_reading(device)
    try:
        late = times_ms(run, device, AT_ONCE)
        while time.perf_counter() - begin < seconds:
            late += times_ms(run, device, AT_ONCE)
    finally:
        load = finish_reading(reading)
    times = {"rested_ms": statistics.median(rested), "sustained_ms": statistics.median(late), "late_runs": len(late)}
    return times | load


def codes(args: argparse.Namespace) -> Iterator[tuple[str, str, Function]]:
    """Yield backend, mode and function of every row."""
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
    parser.add_argument("--small", action="store_true", help="tiny sizes and no rest, for a test of the script")
    parser.add_argument("--out", type=Path, default=RESULTS / "sustained.json")
    args = parser.parse_args(argv)
    args.shape, rest = (Shape(3, 16, 4), 0.0) if args.small else (Shape(64, 512, 28), REST_S)
    device = torch.device(args.device)
    if device.type == "cuda":
        torch.cuda.set_device(device.index or 0)  # the device of the CUDA events
        if kernels_missing():
            raise SystemExit(f"sustained: expected the GPU kernels, which do not run here: {kernels_missing()}.")
    x = make_features(args.shape, args.seed).to(device)
    generator = torch.Generator().manual_seed(args.seed + 1)
    n_entries = args.shape.channels * (args.shape.channels + 1) // 2
    cotangent = torch.randn(args.shape.batch, n_entries, generator=generator).to(device)
    options = ["--small"] * args.small + ["--authors FILE"] * bool(args.authors)
    command = " ".join(["python benchmarks/sustained.py", *options, f"--seconds {args.seconds:g} --seed {args.seed}"])
    rows: list[dict[str, Any]] = []
    for backend, mode, function in codes(args):
        if device.type == "cuda":
            torch.set_float32_matmul_precision(mode)
        found = measure(lambda f=function: value_and_gradient(f, x, cotangent), device, args.seconds, rest)
        row = {"backend": backend, "mode": mode, **args.shape._asdict(), "seconds": args.seconds, "rest_s": rest}
        rows.append(row | found)
        print(rows[-1], flush=True)
        write_results(args.out, "iSICE under load", command, args.seed, device, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
