"""Time and memory of a call on a device."""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

# Slower calls are timed only once: their relative noise is small, and repeating them takes long.
SLOW_SECONDS = 2.0


def training_step(network: nn.Module, x: Tensor, target: Tensor, precision: str) -> Callable[[], None]:
    """Return a function that makes one step of AdamW on a batch."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(x.device.type, dtype, enabled=dtype is not None):
            logits, aux_loss = network(x, return_loss=True)
        (cross_entropy(logits.float(), target) + aux_loss).backward()
        optimizer.step()

    return step


def median_seconds(run: Callable[[], object], device: torch.device, repeats: int) -> tuple[float, int]:
    """Return the median time of ``run`` after one warm-up call, and the number of calls timed."""
    _seconds(run, device)
    first = _seconds(run, device)
    times = [first] if first > SLOW_SECONDS else [first, *(_seconds(run, device) for _ in range(repeats - 1))]
    return statistics.median(times), len(times)


def _seconds(run: Callable[[], object], device: torch.device) -> float:
    """Time one call, including the work that it queues on the device."""
    _synchronize(device)
    start = time.perf_counter()
    run()
    _synchronize(device)
    return time.perf_counter() - start


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_bytes(run: Callable[[], object], device: torch.device) -> int | None:
    """Return the peak of allocated GPU memory during a call, or None on a CPU."""
    if device.type != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats(device)
    _seconds(run, device)
    return torch.cuda.max_memory_allocated(device)


def saved_bytes(layer: nn.Module, x: Tensor) -> int:
    """Count the bytes that autograd saves for the backward pass, without weights and input.

    Example:
        >>> saved_bytes(nn.Sigmoid(), torch.zeros(4, 8))
        128
    """
    excluded = {tensor.untyped_storage().data_ptr() for tensor in (*layer.parameters(), *layer.buffers(), x)}
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in excluded:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = layer(x.detach().requires_grad_())
    # Keep `out` alive until here: addresses of freed storages could be reused.
    del out
    return sum(saved.values())


@contextlib.contextmanager
def tf32(enabled: bool) -> Iterator[None]:
    """Allow TF32 matrix products inside the context if ``enabled``."""
    before = torch.get_float32_matmul_precision()
    if enabled:
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
