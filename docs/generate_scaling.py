"""Tables of the scaling pages, from records of benchmarks/scaling.py, with a projection."""

import textwrap
from pathlib import Path
from typing import Any

from benchmarks.pages import MISSING, ROOT, filled, read_results, table

GUIDE = ROOT / "docs" / "scaling.md"
INTERNALS = ROOT / "docs" / "internals" / "scaling.md"
GRADIENT_BYTES = 4  # gradients are float32 whatever the autocast dtype
IMAGES = {"iNaturalist": 579_184, "ImageNet-1k": 1_281_167}
EPOCHS = {"iNaturalist": 50, "ImageNet-1k": 100}
GPUS = (1, 8, 64)
GPUS_PER_NODE = 8
# Assumed bandwidth per GPU of a ring all-reduce: NVLink inside a node, half of 400 Gbit/s between
# nodes. No overlap with the backward pass is assumed, so that the times are upper bounds.
BANDWIDTH = {"node": 150e9, "network": 25e9}


def pages() -> dict[Path, str]:
    """Return the user's page and the internals page with their tables."""
    counted, processes, gpu = (read_results(f"scaling_{name}") for name in ("bytes", "processes", "gpu"))
    measured = {
        "backbones": backbones(counted["rows"]),
        "heads": heads(counted["rows"]),
        "processes": two_processes(processes["rows"]),
        "gpu": f"{gpu_steps(gpu['rows'])}\n\n{measured_on(gpu)}",
    }
    return {
        GUIDE: filled(GUIDE.read_text(encoding="utf-8"), {"projection": projection(gpu["rows"])}),
        INTERNALS: filled(INTERNALS.read_text(encoding="utf-8"), measured),
    }


def step_seconds(row: dict[str, Any], gpus: int) -> float:
    """Return the time of a step on ``gpus`` GPUs: that of one, then the all-reduce of gradients."""
    gradients = GRADIENT_BYTES * row["parameters"]
    bandwidth = BANDWIDTH["node" if gpus <= GPUS_PER_NODE else "network"]
    return row["step_ms"] / 1e3 + ring_bytes(gradients, gpus) / bandwidth


def ring_bytes(size: float, gpus: int) -> float:
    """Return the bytes that each GPU sends (and receives) in a ring all-reduce of ``size`` bytes.

    Example:
        >>> ring_bytes(100, 1), ring_bytes(100, 2), ring_bytes(100, 4)
        (0.0, 100.0, 150.0)
    """
    return 2 * (gpus - 1) / gpus * size


def run_hours(row: dict[str, Any], gpus: int) -> float:
    """Return the hours of a whole run at the measured batch per GPU."""
    steps = IMAGES[row["data"]] / (row["batch"] * gpus)
    return EPOCHS[row["data"]] * steps * step_seconds(row, gpus) / 3600


def memory_bytes(row: dict[str, Any], gpus: int) -> float:
    """Return the peak per GPU: as measured on one, plus DistributedDataParallel's buckets."""
    return row["peak_gpu_bytes"] + (GRADIENT_BYTES * row["parameters"] if gpus > 1 else 0)


def measured_on(record: dict[str, Any]) -> str:
    """Return hardware, versions and the note of a record."""
    hardware, versions = record["hardware"], record["versions"]
    where = hardware.get("gpu", hardware["cpu"])
    note = f" {record['note']}." if "note" in record else ""
    return textwrap.fill(f"Measured on one {where}, torch {versions['torch']}, timm {versions['timm']}.{note}", 100)


def backbones(rows: list[dict[str, Any]]) -> str:
    """Return parameters and gradient sizes of the paper's backbones."""
    body = [
        (row["name"], f"{row['parameters'] / 1e6:.1f}", _megabytes(row["parameters"]))
        for row in rows
        if row["part"] == "backbone"
    ]
    return table(("backbone, reduced to 256 channels", "parameters (M)", "gradients (MB)"), body)


def heads(rows: list[dict[str, Any]]) -> str:
    """Return gradient sizes of every pooling with its classifier, by dataset."""
    heads = [row for row in rows if row["part"] == "head"]
    names = list(heads[0]["parameters"])
    body = [(row["name"], *(_megabytes(row["parameters"][name]) for name in names)) for row in heads]
    return table(("pooling and classifier: gradients (MB)", *names), body)


def two_processes(rows: list[dict[str, Any]]) -> str:
    """Return the speed of two CPU processes against one."""
    body = []
    for row in rows:
        one, two = (max(run["images_per_second"] for run in row["runs"][n]) for n in ("1", "2"))
        speeds = f"{one:,.0f}", f"{two:,.0f}", f"{row['efficiency']:.0%}"
        body.append((str(row["batch"]), *speeds, f"{row['cpu_efficiency']:.0%}", f"{row['load_average']:.1f}"))
    header = ("images per step", "images/s, one process", "images/s, two", "efficiency", "by CPU time", "load average")
    return table(header, body)


def gpu_steps(rows: list[dict[str, Any]]) -> str:
    """Return the measured training steps."""
    body = [
        (row["data"], f"{row['image_size']} px", row["backbone"], row["head"], *_measured(row))
        for row in rows
        if "step_ms" in row
    ]
    return table(("data", "size", "backbone", "pooling", "step (ms)", "steps", "images/s", "peak memory (GB)"), body)


def _measured(row: dict[str, Any]) -> tuple[str, ...]:
    peak = MISSING if row["peak_gpu_bytes"] is None else f"{row['peak_gpu_bytes'] / 1e9:.1f}"
    return f"{row['step_ms']:.1f}", str(row["steps"]), f"{row['images_per_second']:,.0f}", peak


def projection(rows: list[dict[str, Any]]) -> str:
    """Return the projected times of whole runs on 1, 8 and 64 GPUs."""
    body = []
    for row in rows:
        if row["data"] in IMAGES and "step_ms" in row:
            hours = [_hours(run_hours(row, gpus)) for gpus in GPUS]
            efficiency = row["step_ms"] / 1e3 / step_seconds(row, GPUS[-1])
            memory = MISSING if row["peak_gpu_bytes"] is None else f"{memory_bytes(row, 8) / 1e9:.1f}"
            body.append((row["data"], row["backbone"], row["head"], *hours, f"{efficiency:.0%}", memory))
    headers = ("data", "backbone", "pooling", *(f"{n} GPU{'s' if n > 1 else ''}" for n in GPUS))
    return table((*headers, "efficiency at 64", "memory per GPU (GB)"), body)


def _hours(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min"


def _megabytes(parameters: int) -> str:
    return f"{GRADIENT_BYTES * parameters / 1e6:,.1f}"
