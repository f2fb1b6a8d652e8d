"""Measure iSICE on a CPU against the time of its matrix products alone.

Usage: python benchmarks/cpu_products.py [--sizes 64 128 256] [--batch 8] [--threads 1 2]

The products are recorded while the operation runs, then replayed on preallocated buffers that
overlap as the operation's own memory did. Both are timed in alternation and the shortest time of
each is kept. One thread is timed by CPU time, several by wall time.

With a C++ compiler, the operation is also timed under torch.compile (with ``cpp_wrapper``).
Compiled forward and backward share products, which costs memory. Their time is compared with that
of as many products of the replay.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import isice.functional as F
from benchmarks.measure import RESULTS, write_results

aten = torch.ops.aten
PRODUCTS: dict[Any, Callable[..., Tensor]] = {
    aten.bmm.default: torch.bmm,
    aten.bmm.out: torch.bmm,
    aten.baddbmm.default: torch.baddbmm,
    aten.baddbmm.out: torch.baddbmm,
    aten.baddbmm_.default: torch.baddbmm,
}


class Place(NamedTuple):
    """Address and layout of an operand."""

    address: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @property
    def end(self) -> int:
        """Return the address after the last entry."""
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.stride, strict=True))
        return self.address + (last + 1) * self.dtype.itemsize


def _place(tensor: Tensor) -> Place:
    return Place(tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)


def _buffers(places: set[Place]) -> dict[Place, Tensor]:
    """Allocate a buffer per place; places that overlapped share memory, for the same cache hits.

    Buffers are zero: no chain of products overflows or becomes denormal.
    """
    regions: list[list[Place]] = []
    end = 0
    for place in sorted(places, key=lambda place: place.address):
        if place.address >= end:
            regions.append([])
        regions[-1].append(place)
        end = max(end, place.end)
    buffers = {}
    for region in regions:
        begin = region[0].address
        memory = torch.zeros(max(place.end for place in region) - begin, dtype=torch.uint8)
        for place in region:
            entries = memory[place.address - begin : place.end - begin].view(place.dtype)
            buffers[place] = entries.as_strided(place.shape, place.stride)
    return buffers


class ProductRecorder(TorchDispatchMode):
    """Records the batched matrix products of an operation and replays them on its own buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[tuple[Callable[..., Tensor], tuple[Place, ...], Place, dict[str, Any]]] = []
        self.calls: list[tuple[Callable[..., Tensor], tuple[Tensor, ...], dict[str, Any]]] = []
        self.buffers: dict[Place, Tensor] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func in PRODUCTS:
            scalars = {key: value for key, value in kwargs.items() if key != "out"}
            self.noted.append((PRODUCTS[func], tuple(map(_place, args)), _place(result), scalars))
        return result

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.buffers = _buffers({place for _, operands, result, _ in self.noted for place in (*operands, result)})
        for function, operands, result, scalars in self.noted:
            options = {**scalars, "out": self.buffers[result]}
            self.calls.append((function, tuple(self.buffers[place] for place in operands), options))

    def replay(self) -> None:
        """Compute the recorded products in order."""
        for function, operands, options in self.calls:
            function(*operands, **options)


def recorded(run: Callable[[], object]) -> ProductRecorder:
    """Record the products of one call of ``run``."""
    with ProductRecorder() as recorder:
        run()
    return recorder


def shortest_ms(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the shortest time of each, interleaved, after a warm-up."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    best = dict.fromkeys(runs, float("inf"))
    for turn in range(rounds + 1):
        for name, run in runs.items():
            begin = clock()
            run()
            if turn:
                best[name] = min(best[name], 1e3 * (clock() - begin))
    return best


def measure(size: int, threads: int, args: argparse.Namespace) -> dict[str, Any]:
    """Return one row: the operation and its products, forward alone and with backward."""
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(args.seed)
    cov = F.covariance(torch.randn(args.batch, size, args.positions, generator=generator).relu()).requires_grad_()
    weights = torch.randn(cov.shape, generator=generator)

    def operation(cov: Tensor) -> Tensor:
        return F.isice(cov, backend="torch")

    def passes(function: Callable[[Tensor], Tensor]) -> dict[str, Callable[[], Tensor]]:
        def forward() -> Tensor:
            with torch.no_grad():
                return function(cov)

        return {"forward": forward, "forward_backward": lambda: torch.autograd.grad(function(cov), cov, weights)[0]}

    runs = passes(operation)
    products = {name: recorded(run) for name, run in runs.items()}
    timed: dict[str, Callable[[], object]] = {**runs, **{f"{name}_products": p.replay for name, p in products.items()}}
    row: dict[str, Any] = {"size": size, "batch": args.batch, "threads": threads}
    row["kept_matrices"] = kept_matrices(operation, cov)
    if has_compiler():
        torch._dynamo.reset()  # discard code compiled for another number of threads
        compiled = torch.compile(operation, fullgraph=True, options={"cpp_wrapper": True})
        timed |= {f"compiled_{name}": run for name, run in passes(compiled).items()}
        row["compiled_kept_matrices"] = kept_matrices(compiled, cov)
        # The profiler does not see calls from C++; the graph called from Python is the same.
        counts = {name: count_products(run) for name, run in passes(torch.compile(operation, fullgraph=True)).items()}
    times = shortest_ms(timed, args.rounds)
    for name, recorder in products.items():
        own = times[f"{name}_products"]
        row[f"{name}_products"], row[f"{name}_products_ms"] = len(recorder.calls), own
        row[f"{name}_ms"], row[f"{name}_ratio"] = times[name], times[name] / own
        if has_compiler():
            share = counts[name] / sum(operands[0].shape[0] for _, operands, _ in recorder.calls)
            row[f"compiled_{name}_ms"], row[f"compiled_{name}_share"] = times[f"compiled_{name}"], share
            row[f"compiled_{name}_ratio"] = times[f"compiled_{name}"] / (own * share)
    return row


def count_products(run: Callable[[], object]) -> int:
    """Count the matrices that the batched products of a call multiply, after a warm-up call."""
    run()
    with torch.profiler.profile(record_shapes=True) as profile:
        run()
    products = ("aten::bmm", "aten::baddbmm", "aten::baddbmm_")
    return sum(event.input_shapes[0][0] for event in profile.events() if event.name in products)


def kept_matrices(function: Callable[[Tensor], Tensor], cov: Tensor) -> float:
    """Count the matrices per image saved for the backward pass, including the covariance."""
    sizes: dict[int, int] = {}

    def note(kept: Tensor) -> Tensor:
        sizes[kept.data_ptr()] = kept.nbytes
        return kept

    with torch.autograd.graph.saved_tensors_hooks(note, lambda kept: kept):
        function(cov)
    return sum(sizes.values()) / cov.nbytes


def has_compiler() -> bool:
    """Return whether there is a C++ compiler for torch.compile."""
    return any(shutil.which(name) for name in ("g++", "c++", "clang++"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--positions", type=int, default=196)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS / "cpu_products.json")
    args = parser.parse_args()
    rows = []
    for threads in args.threads:
        for size in args.sizes:
            rows.append(measure(size, threads, args))
            row = rows[-1]
            print(
                f"D={size:4} {threads} threads: forward {row['forward_ms']:.1f} ms, ×{row['forward_ratio']:.2f} of its "
                f"{row['forward_products']} products; with backward {row['forward_backward_ms']:.1f} ms, "
                f"×{row['forward_backward_ratio']:.2f} of {row['forward_backward_products']}",
                flush=True,
            )
            if has_compiler():
                ratios = row["compiled_forward_ratio"], row["compiled_forward_backward_ratio"]
                share = f"with backward {row['compiled_forward_backward_share']:.0%} of these"
                print("   compiled: ×{:.2f} and ×{:.2f} of its own products,".format(*ratios), share, flush=True)
    options = ("batch", "positions", "rounds", "seed")
    command = " ".join(["python benchmarks/cpu_products.py", *(f"--{key} {getattr(args, key)}" for key in options)])
    write_results(args.out, "iSICE and its matrix products on a CPU", command, args.seed, torch.device("cpu"), rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
