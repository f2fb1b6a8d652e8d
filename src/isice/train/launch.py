"""Devices, processes, threads, determinism and compilation of a run."""

import atexit
import copy
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from .._parent import end_with_parent
from ..config import RunConfig
from ..models import Network

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_PRECISION = {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}


def create_fabric(config: RunConfig, *, loggers: Sequence[Any] = ()) -> "Fabric":
    """Create and launch Lightning Fabric for a config.

    Under torchrun or SLURM their processes are used; otherwise Fabric starts ``devices`` ×
    ``nodes``. ``loggers`` are Fabric's own, or have its ``log_metrics`` and ``finalize``.
    """
    try:
        from lightning_fabric import Fabric
    except ImportError:  # the package lightning contains it under another name
        from lightning.fabric import Fabric  # type: ignore[no-redef]

    for name in ("lightning_fabric", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    device = resolve_device(config.device)
    if config.precision == "fp16" and device.type == "cpu":
        raise ValueError("train: expected a GPU for precision=fp16, got the CPU; use bf16.")
    if config.sync_bn and device.type == "cpu":
        raise ValueError("train: expected GPUs for sync_bn, got the CPU; turn sync_bn off.")
    local, nodes = launched(os.environ) or (config.devices, config.nodes)
    fabric = Fabric(
        accelerator=device.type,
        devices=[device.index] if local == 1 and device.index is not None else local,
        num_nodes=nodes,
        strategy="ddp" if local * nodes > 1 else "auto",
        precision=_PRECISION[config.precision],  # type: ignore[arg-type]
        loggers=list(loggers),
    )
    if launched(os.environ) is None and "LOCAL_RANK" in os.environ:
        end_with_parent(os.getppid())  # a process that Fabric started
    fabric.launch()
    if fabric.world_size > 1:
        atexit.register(_destroy_process_group)
    return fabric


def _destroy_process_group() -> None:
    """Destroy the process group. NCCL warns if a process exits without it."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def launched(environment: Mapping[str, str]) -> tuple[int, int] | None:
    """Return (processes per node, nodes) under torchrun or SLURM, otherwise None.

    Example:
        >>> launched({"TORCHELASTIC_RUN_ID": "1", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"})
        (8, 2)
    """
    if "TORCHELASTIC_RUN_ID" in environment:
        local = int(environment["LOCAL_WORLD_SIZE"])
        return local, int(environment["WORLD_SIZE"]) // local
    if "SLURM_PROCID" in environment and int(environment.get("SLURM_NTASKS", "1")) > 1:
        nodes = int(environment["SLURM_NNODES"])
        return int(environment["SLURM_NTASKS"]) // nodes, nodes
    return None


def is_main_process(environment: Mapping[str, str] | None = None) -> bool:
    """Return whether this process has rank 0; works before :func:`create_fabric`, too."""
    environment = os.environ if environment is None else environment
    if "TORCHELASTIC_RUN_ID" in environment:
        return environment["RANK"] == "0"
    if "SLURM_PROCID" in environment and launched(environment):
        return environment["SLURM_PROCID"] == "0"
    return environment.get("LOCAL_RANK", "0") == "0" and environment.get("NODE_RANK", "0") == "0"


def resolve_device(name: str) -> torch.device:
    """Return the device of that name; ``"auto"`` is the GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device: expected a device like 'auto', 'cpu' or 'cuda:0', got {name!r}.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device: expected an available device, got {name!r}, but there is no CUDA; use cpu.")
    return device


@contextmanager
def cpu_threads(count: int | None) -> Iterator[None]:
    """Set the number of CPU threads within the context; None changes nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def determinism(wanted: bool) -> Iterator[None]:
    """Use deterministic algorithms within the context, or else let cuDNN choose the fastest ones.

    An operation without a deterministic algorithm then raises. Only GPUs need it.
    """
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    if wanted:
        # cuBLAS reads this when it creates its first handle.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = not wanted
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.backends.cudnn.benchmark = before[1]


def copy_to_host(*values: Tensor) -> Callable[[], list[float]]:
    """Start an asynchronous copy of scalars to the host; call the result to wait for the values.

    It does not wait for work that is queued on the GPU after this call.
    """
    stacked = torch.stack([value.detach().double() for value in values])
    if stacked.device.type != "cuda":
        return lambda: [float(value) for value in stacked]
    copied = stacked.to("cpu", non_blocking=True)
    event = torch.cuda.Event()
    event.record()

    def read() -> list[float]:
        event.synchronize()
        return [float(value) for value in copied]

    return read


def with_compiled_backbone(model: nn.Module) -> nn.Module:
    """Return a copy that shares all weights and runs the backbone compiled, for the training steps.

    Poolings have kernels of their own, and ``model`` itself stays uncompiled: evaluation has
    batches of several sizes. Later models with the same backbone need no compilation.
    """
    if not isinstance(model, Network):
        return cast(nn.Module, torch.compile(model))
    compiled = copy.copy(model)
    compiled._modules = {**model._modules, "backbone": cast(nn.Module, torch.compile(model.backbone))}
    return compiled
