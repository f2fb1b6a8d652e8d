"""Time and memory of a training step or of a pooling layer, on random input."""

import gc
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..._checks import check_choice, check_int
from ..job_configs import Job

if TYPE_CHECKING:
    import torch

_SIZES = ("reduce", "num_classes", "image_size", "channels", "side", "batch_size", "epoch_images", "repeats")


@dataclass(frozen=True)
class BenchConfig:
    """What is measured: a training step, or forward and backward of a pooling layer alone.

    Weights are random; nothing is loaded.
    """

    what: str = "step"  # or "layer"
    backbone: str = "resnet50"
    pooling: str = "isice"
    reduce: int = 256
    num_classes: int = 100
    image_size: int = 224  # of a step
    channels: int = 256  # of the feature maps of a layer, side × side
    side: int = 14
    batch_size: int = 64
    epoch_images: int = 126689  # that epoch_minutes refers to
    precision: str = "fp32"
    repeats: int = 5
    seed: int = 0
    device: str = field(default="auto", metadata={"hashed": False})

    def __post_init__(self) -> None:
        check_choice("bench", "what", self.what, ("step", "layer"))
        check_choice("bench", "precision", self.precision, ("fp32", "tf32", "bf16"))
        for name in _SIZES:
            check_int("bench", name, getattr(self, name), minimum=1)


def measure(config: BenchConfig) -> dict[str, Any]:
    """Measure what the config describes.

    Returns:
        For a step ``batch_seconds``, ``epoch_minutes``, ``peak_gib`` (None on a CPU) and
        ``parameters``. For a layer ``forward_ms``, ``forward_backward_ms``, ``kept_mib``
        (activations that autograd saves), ``kept_gb_per_image`` and ``peak_mib``. For both
        ``hardware`` and ``repeats``, the number of timed calls.
    """
    import torch

    from ...train.hardware import hardware
    from ...train.launch import resolve_device
    from ._measure import tf32

    device = resolve_device(config.device)
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    torch.manual_seed(config.seed)
    with tf32(config.precision == "tf32"):
        numbers = _measure_step(config, device) if config.what == "step" else _measure_layer(config, device)
    return {"hardware": hardware(device), **numbers}


def _measure_step(config: BenchConfig, device: "torch.device") -> dict[str, Any]:
    import torch

    from ...models import create_model
    from ._measure import median_seconds, peak_bytes, training_step

    size = config.image_size
    model = create_model(
        config.backbone, pooling=config.pooling, num_classes=config.num_classes, reduce=config.reduce, img_size=size
    )
    model = model.to(device).train()
    x = torch.randn(config.batch_size, 3, size, size, device=device)
    target = torch.randint(config.num_classes, (config.batch_size,), device=device)
    step = training_step(model, x, target, config.precision)
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


def _measure_layer(config: BenchConfig, device: "torch.device") -> dict[str, Any]:
    import torch

    from ...pooling import create_pooling
    from ._measure import median_seconds, peak_bytes, saved_bytes

    layer = create_pooling(config.pooling, config.channels, num_classes=config.num_classes).to(device)
    x = torch.randn(config.batch_size, config.channels, config.side, config.side, device=device).relu()

    def forward() -> None:
        with torch.no_grad():
            layer(x)

    def forward_backward() -> None:
        layer(x.detach().requires_grad_()).sum().backward()

    total, repeats = median_seconds(forward_backward, device, config.repeats)
    saved = saved_bytes(layer, x)
    before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    peak = peak_bytes(forward_backward, device)
    return {
        "forward_ms": 1e3 * median_seconds(forward, device, config.repeats)[0],
        "forward_backward_ms": 1e3 * total,
        "kept_mib": saved / 2**20,
        "kept_gb_per_image": saved / config.batch_size / 1e9,
        "peak_mib": None if peak is None else (peak - before) / 2**20,
        "repeats": repeats,
    }


JOB = Job(BenchConfig, compute=measure)
