"""Where a run computes: the device, the processes that share the work, threads, and determinism."""

import atexit
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..config import RunConfig

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_PRECISION = {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}


def create_fabric(config: RunConfig) -> "Fabric":
    """Lightning Fabric for a config: one process, the processes of torchrun or SLURM, or those it starts itself."""
    try:
        from lightning_fabric import Fabric
    except ImportError:
        from lightning.fabric import Fabric  # type: ignore[no-redef]

    for name in ("lightning_fabric", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    device = resolve_device(config.device)
    if config.precision == "fp16" and device.type == "cpu":
        raise ValueError("train: expected a GPU for precision=fp16, got the CPU, where it is not safe; use bf16.")
    if config.sync_bn and device.type == "cpu":
        raise ValueError(
            "train: expected GPUs for sync_bn, got the CPU, where torch has no such BatchNorm; turn it off."
        )
    local, nodes = launched(os.environ) or (config.devices, config.nodes)
    fabric = Fabric(
        accelerator=device.type,
        devices=[device.index] if local == 1 and device.index is not None else local,
        num_nodes=nodes,
        strategy="ddp" if local * nodes > 1 else "auto",
        precision=_PRECISION[config.precision],  # type: ignore[arg-type]
    )
    fabric.launch()
    if fabric.world_size > 1:
        atexit.register(_leave_processes)
    return fabric


def _leave_processes() -> None:
    """Takes leave of the other processes; NCCL warns about those that just go."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def launched(environment: Mapping[str, str]) -> tuple[int, int] | None:
    """Processes per node and nodes, as torchrun or SLURM started them; None if neither did.

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
    """True in the one process that prints and writes; known before and after :func:`create_fabric`."""
    environment = os.environ if environment is None else environment
    if "TORCHELASTIC_RUN_ID" in environment:
        return environment["RANK"] == "0"
    if "SLURM_PROCID" in environment and launched(environment):
        return environment["SLURM_PROCID"] == "0"
    return environment.get("LOCAL_RANK", "0") == "0" and environment.get("NODE_RANK", "0") == "0"


def resolve_device(name: str) -> torch.device:
    """``"auto"`` is the GPU if there is one; a device asked for by name must exist."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"train: expected a device like 'auto', 'cpu' or 'cuda:0', got {name!r}.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"train: expected an available device, got {name!r}, but there is no CUDA; use device=cpu.")
    return device


@contextmanager
def cpu_threads(count: int | None) -> Iterator[None]:
    """Computes with ``count`` CPU threads for a while; None leaves the number alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def determinism(wanted: bool) -> Iterator[None]:
    """Only deterministic algorithms for a while (an operation without one is an error), or else the fastest ones.

    It is for GPUs: runs on a CPU repeat themselves anyway.
    """
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    if wanted:
        # cuBLAS reads this when its first handle is made.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = not wanted
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.backends.cudnn.benchmark = before[1]


def peak_memory(device: torch.device) -> dict[str, int]:
    """The most memory in bytes: resident on the host since the process began, on the GPU since the run did."""
    found = {}
    if sys.platform != "win32":
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        found["host_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    if device.type == "cuda":
        found["gpu_bytes"] = torch.cuda.max_memory_allocated(device)
    return found


def read_later(*values: Tensor) -> Callable[[], list[float]]:
    """Starts copying numbers to the host; the result gives them, without waiting for work queued after this call."""
    stacked = torch.stack([value.detach().double() for value in values])
    if stacked.device.type != "cuda":
        return stacked.tolist
    copied = stacked.to("cpu", non_blocking=True)
    event = torch.cuda.Event()
    event.record()

    def read() -> list[float]:
        event.synchronize()
        return copied.tolist()

    return read
