"""Measure time and memory of every registered pooling, forward and backward.

Usage: python benchmarks/heads.py [--only isice gap …] [--batch 32] [--channels 256] [--out FILE]

On a CPU it takes the processor time of one thread, which other processes hardly change.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.measure import RESULTS, forward_backward, peak_mib, times_ms, write_results
from isice.pooling import Pooling, create_pooling, list_poolings

NUM_CLASSES = 200
SLOW_SECONDS = 2.0


def kept_mib(layer: Pooling, x: Tensor) -> float:
    """Return the MiB of activations that autograd saves for the backward pass, without weights."""
    weights = {t.untyped_storage().data_ptr() for t in (*layer.parameters(), *layer.buffers())}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = layer(x.detach().requires_grad_())
    # Keep `out` alive until here: the allocator could reuse a freed storage,
    # which would be counted once.
    del out
    return sum(kept.values()) / 2**20


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Measure one pooling at its default options."""
    device = torch.device(args.device)

    def time_ms(run: Callable[[], object], repeats: int) -> float:
        """Return the median of ``repeats`` after a warm-up; a single one is timed without it."""
        if repeats > 1:
            run()
        return statistics.median(times_ms(run, device, repeats, time.process_time))

    torch.manual_seed(args.seed)
    layer = create_pooling(name, args.channels, num_classes=NUM_CLASSES).to(device)
    generator = torch.Generator().manual_seed(args.seed)
    x = torch.randn(args.batch, args.channels, args.side, args.side, generator=generator).relu().to(device)
    value, gradient = forward_backward(layer, x)  # compiles the kernels
    if not (value.isfinite().all() and gradient.isfinite().all()):
        raise RuntimeError(f"{name}: expected finite values and gradients, got others; run tests/pooling first.")
    repeats = 1 if time_ms(lambda: forward_backward(layer, x), 1) > 1e3 * SLOW_SECONDS else args.repeats
    with torch.no_grad():
        forward_ms = time_ms(lambda: layer(x), repeats)
    return {
        "name": name,
        "spec": layer.spec,
        "out_features": layer.out_features,
        "parameters": sum(parameter.numel() for parameter in layer.parameters()),
        "repeats": repeats,
        "forward_ms": forward_ms,
        "forward_backward_ms": time_ms(lambda: forward_backward(layer, x), repeats),
        "kept_mib": kept_mib(layer, x),
        "peak_mib": peak_mib(lambda: forward_backward(layer, x), device),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=list_poolings(), default=list_poolings())
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--channels", type=int, default=256)
    parser.add_argument("--side", type=int, default=14)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(arguments)
    if torch.device(args.device).type == "cpu":
        torch.set_num_threads(1)
    rows = []
    for name in args.only:
        rows.append(measure(name, args))
        row = rows[-1]
        print(
            f"{name}: forward {row['forward_ms']:.2f} ms, with backward {row['forward_backward_ms']:.2f} ms", flush=True
        )
    title = f"pooling layers, B = {args.batch}, C = {args.channels}, {args.side}×{args.side}, float32"
    options = ("device", "batch", "channels", "side", "repeats", "seed")
    only = [] if args.only == list_poolings() else ["--only", *args.only]
    command = " ".join(["python benchmarks/heads.py", *only, *(f"--{key} {getattr(args, key)}" for key in options)])
    out = args.out or RESULTS / f"heads_{torch.device(args.device).type}.json"
    write_results(out, title, command, args.seed, torch.device(args.device), rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
