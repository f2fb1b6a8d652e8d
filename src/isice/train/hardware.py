"""Hardware and peak memory, as records describe them."""

import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch


def hardware(device: torch.device | None = None) -> dict[str, Any]:
    """Describe the CPU and, if given, the device that computes."""
    found: dict[str, Any] = {"cpu": _cpu_name(), "cores": os.cpu_count(), "threads": torch.get_num_threads()}
    if device is not None:
        found["device"] = str(device)
    if device is not None and device.type == "cuda":
        found["gpu"] = torch.cuda.get_device_name(device)
        found["gpus"] = torch.cuda.device_count()
        found["cuda"] = torch.version.cuda
    return found


def peak_memory(device: torch.device) -> dict[str, int]:
    """Return peak memory in bytes: of the process on the host, and of the run on the GPU."""
    found = {}
    if sys.platform != "win32":
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        found["host_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    if device.type == "cuda":
        found["gpu_bytes"] = torch.cuda.max_memory_allocated(device)
    return found


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
