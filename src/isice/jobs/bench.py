"""Time and memory of training steps and of pooling layers, on random numbers and the hardware at hand."""

import contextlib
import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ..experiments.kinds import BenchConfig
from ..models import create_model
from ..pooling import create_pooling
from ..train.launch import resolve_device
from ..train.record import hardware

# What takes this long is measured once: its noise is small, its repetition dear.
SLOW_SECONDS = 2.0


def measure(config: BenchConfig) -> dict[str, Any]:
    """Measures what the config says.

    Returns:
        For a step ``batch_seconds``, ``epoch_minutes``, ``peak_gib`` (None on a CPU, which does not count) and
        ``parameters``; for a layer ``forward_ms``, ``forward_backward_ms``, ``kept_mib`` (activations that autograd
        keeps), ``kept_gb_per_image`` and ``peak_mib``; with both the hardware, and how often it was repeated.
    """
    device = resolve_device(config.device)
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    torch.manual_seed(config.seed)
    with tf32(config.precision == "tf32"):
        numbers = _step(config, device) if config.what == "step" else _layer(config, device)
    return {"hardware": hardware(device), **numbers}


def _step(config: BenchConfig, device: torch.device) -> dict[str, Any]:
    size = config.image_size
    model = create_model(
        config.backbone,
        pooling=config.pooling,
        num_classes=config.num_classes,
        reduce=config.reduce,
        img_size=size,
    )
    model = model.to(device).train()
    x = torch.randn(config.batch_size, 3, size, size, device=device)
    target = torch.randint(config.num_classes, (config.batch_size,), device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bf16"):
            logits, aux_loss = model(x, return_loss=True)
        (cross_entropy(logits.float(), target) + aux_loss).backward()
        optimizer.step()

    seconds, repeats = median_seconds(step, device, config.repeats)
    batches = math.ceil(config.epoch_images / config.batch_size)
    peak = peak_bytes(step, device)
    return {
        "batch_seconds": seconds,
        "epoch_minutes": seconds * batches / 60,
        "peak_gib": None if peak is None else peak / 2**30,
        "parameters": {"total": sum(parameter.numel() for parameter in model.parameters())},
        "repeats": repeats,
    }


def _layer(config: BenchConfig, device: torch.device) -> dict[str, Any]:
    layer = create_pooling(config.pooling, config.channels, num_classes=config.num_classes).to(device)
    x = torch.randn(config.batch_size, config.channels, config.side, config.side, device=device).relu()

    def forward() -> None:
        with torch.no_grad():
            layer(x)

    def forward_backward() -> None:
        layer(x.detach().requires_grad_()).sum().backward()

    total, repeats = median_seconds(forward_backward, device, config.repeats)
    kept = kept_bytes(layer, x)
    before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    peak = peak_bytes(forward_backward, device)
    return {
        "forward_ms": 1e3 * median_seconds(forward, device, config.repeats)[0],
        "forward_backward_ms": 1e3 * total,
        "kept_mib": kept / 2**20,
        "kept_gb_per_image": kept / config.batch_size / 1e9,
        "peak_mib": None if peak is None else (peak - before) / 2**20,
        "repeats": repeats,
    }


def median_seconds(run: Callable[[], object], device: torch.device, repeats: int) -> tuple[float, int]:
    """Median time of ``run`` after one warm-up, and over how many repetitions: one alone if it is slow."""
    timed(run, device)
    first = timed(run, device)
    times = [first] if first > SLOW_SECONDS else [first, *(timed(run, device) for _ in range(repeats - 1))]
    return statistics.median(times), len(times)


def timed(run: Callable[[], object], device: torch.device) -> float:
    """Seconds of one call, with all work that it has queued on the device."""
    synchronize(device)
    start = time.perf_counter()
    run()
    synchronize(device)
    return time.perf_counter() - start


def synchronize(device: torch.device) -> None:
    """Waits for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_bytes(run: Callable[[], object], device: torch.device) -> int | None:
    """The most GPU memory allocated during a call, with what was there before; None on a CPU."""
    if device.type != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats(device)
    timed(run, device)
    return torch.cuda.max_memory_allocated(device)


def kept_bytes(layer: nn.Module, x: Tensor) -> int:
    """Bytes of activations that autograd keeps for the backward pass: each storage once, weights and input not counted.

    Example:
        >>> kept_bytes(nn.Sigmoid(), torch.zeros(4, 8))
        128
    """
    own = {tensor.untyped_storage().data_ptr() for tensor in (*layer.parameters(), *layer.buffers(), x)}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = layer(x.detach().requires_grad_())
    # `out` lives until here: a freed storage could be handed out again and hide another.
    del out
    return sum(kept.values())


@contextlib.contextmanager
def tf32(wanted: bool) -> Iterator[None]:
    """Matrix products in TF32 for a while; otherwise torch's settings are left alone."""
    before = torch.get_float32_matmul_precision()
    if wanted:
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
