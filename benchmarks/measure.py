"""Measurements shared by the benchmarks: time, FLOPs, memory, error, and the record they write."""

import itertools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from isice.records import commit, versions
from isice.train.hardware import hardware

RESULTS = Path(__file__).parent / "results"


def count_flops() -> FlopCounterMode:
    """Return PyTorch's FLOP counter, extended to in-place ``baddbmm_``."""

    def added_in_place(_: torch.Size, a: torch.Size, b: torch.Size, **__: object) -> int:
        return 2 * a.numel() * b[-1]

    return FlopCounterMode(display=False, custom_mapping={torch.ops.aten.baddbmm_: added_in_place})


def median_ms(run: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Return the median time of ``run`` in milliseconds after one warm-up.

    Timed by CUDA events on a GPU, where the runs are queued without synchronisation, and
    by the wall clock on a CPU.
    """
    run()
    return statistics.median(times_ms(run, device, repeats))


def times_ms(
    run: Callable[[], object], device: torch.device, repeats: int, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Return the times of ``repeats`` runs in milliseconds; ``clock`` gives seconds on a CPU."""
    if device.type == "cuda":
        return _queued_ms(run, repeats)
    times = []
    for _ in range(repeats):
        start = clock()
        run()
        times.append(1e3 * (clock() - start))
    return times


def _queued_ms(run: Callable[[], object], repeats: int) -> list[float]:
    """Return the GPU times of runs in milliseconds, synchronising once at the end."""
    torch.cuda.synchronize()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    events[0].record()
    for event in events[1:]:
        run()
        event.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) for begin, end in itertools.pairwise(events)]


def forward_backward(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the value, and the gradient of ⟨weights, function(x)⟩, symmetrised for matrices."""
    x = x.detach().requires_grad_()
    value = function(x)
    weights = torch.linspace(-1, 1, value[0].numel(), dtype=x.dtype, device=x.device).reshape(value[0].shape)
    gradient = torch.autograd.grad((value * weights).sum(), x)[0]
    return value.detach(), gradient + gradient.mT if x.ndim == 3 else gradient


def cost(function: Callable[[Tensor], Tensor], x: Tensor) -> dict[str, float]:
    """Return the FLOPs of matrix products, both passes, and the MiB kept for backward per image."""
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    x = x.detach().requires_grad_()
    with count_flops() as forward, hooks:
        value = function(x)
    with count_flops() as backward:
        value.sum().backward()
    mib = sum(kept.values()) / len(x) / 2**20
    flops = forward.get_total_flops() / len(x), backward.get_total_flops() / len(x)
    return {"forward_flops": flops[0], "backward_flops": flops[1], "kept_mib_per_image": mib}


def peak_mib(run: Callable[[], object], device: torch.device) -> float | None:
    """Return the peak GPU memory of ``run`` in MiB beyond that held before; None on a CPU."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def relative_error(value: Tensor, expected: Tensor) -> float:
    """Return ‖value − expected‖/‖expected‖."""
    return float((value.double() - expected).norm() / expected.norm())


def median_error(value: Tensor, expected: Tensor) -> float:
    """Return the median of ‖value − expected‖/‖expected‖ over the batch."""
    difference = (value.double() - expected).flatten(1).norm(dim=1)
    return float((difference / expected.flatten(1).norm(dim=1)).median())


def write_results(
    path: Path,
    title: str,
    command: str,
    seed: int,
    device: torch.device,
    rows: list[dict[str, Any]],
    code: str | None = None,
) -> None:
    """Write a record: title, command, commit (else ``code``), hardware, seed and rows."""
    record = {
        "title": title,
        "command": command,
        "commit": commit() or code,
        "versions": versions(),
        "hardware": hardware(device),
        "seed": seed,
        "rows": rows,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"wrote {path}")
