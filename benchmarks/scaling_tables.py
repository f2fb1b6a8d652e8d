"""The tables of docs/scaling.md, from the records that benchmarks/scaling.py leaves; a missing figure is "—"."""

import json
from pathlib import Path
from typing import Any

from benchmarks.measure import RESULTS
from benchmarks.pages import fill

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "scaling.md"
GRADIENT_BYTES = 4  # gradients are float32 whatever the autocast dtype
IMAGES = {"iNaturalist": 579_184, "ImageNet-1k": 1_281_167}
EPOCHS = {"iNaturalist": 50, "ImageNet-1k": 100}
GPUS = (1, 8, 64)
GPUS_PER_NODE = 8
# Assumed, not measured: what a ring all-reduce gets per GPU inside a node (NVLink) and between nodes (400 Gbit/s each,
# half of it used). Nothing is assumed to overlap with the backward pass, so that the times are upper bounds.
BANDWIDTH = {"node": 150e9, "network": 25e9}


def write_document() -> None:
    """Writes the tables of the page anew."""
    fill(DOCUMENT, tables())


def tables() -> dict[str, str]:
    """Every generated part by the name of its marker."""
    counted, processes, gpu = (_rows(name) for name in ("bytes", "processes", "gpu"))
    return {
        "backbones": _backbones(counted),
        "heads": _heads(counted),
        "processes": _processes(processes),
        "gpu": _gpu(gpu),
        "projection": _projection(gpu),
    }


def step_seconds(row: dict[str, Any], gpus: int) -> float:
    """The time of a step on ``gpus`` GPUs: that of one, and after it the exchange of all gradients."""
    gradients = GRADIENT_BYTES * row["parameters"]
    bandwidth = BANDWIDTH["node" if gpus <= GPUS_PER_NODE else "network"]
    return row["step_ms"] / 1e3 + ring_bytes(gradients, gpus) / bandwidth


def ring_bytes(size: float, gpus: int) -> float:
    """What each GPU sends (and receives) when ``size`` bytes are summed over all in a ring.

    Example:
        >>> ring_bytes(100, 1), ring_bytes(100, 2), ring_bytes(100, 4)
        (0.0, 100.0, 150.0)
    """
    return 2 * (gpus - 1) / gpus * size


def run_hours(row: dict[str, Any], gpus: int) -> float:
    """Hours of a whole run at the measured batch per GPU."""
    steps = IMAGES[row["data"]] / (row["batch"] * gpus)
    return EPOCHS[row["data"]] * steps * step_seconds(row, gpus) / 3600


def memory_bytes(row: dict[str, Any], gpus: int) -> float:
    """Peak per GPU: as measured on one, and the gradient buckets that the exchange keeps besides."""
    return row["peak_gpu_bytes"] + (GRADIENT_BYTES * row["parameters"] if gpus > 1 else 0)


def _rows(name: str) -> list[dict[str, Any]]:
    path = RESULTS / f"scaling_{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []


def _measured_on(name: str) -> str:
    path = RESULTS / f"scaling_{name}.json"
    if not path.is_file():
        return "Not measured yet."
    record = json.loads(path.read_text(encoding="utf-8"))
    hardware, versions = record["hardware"], record["versions"]
    where = hardware.get("gpu", hardware["cpu"])
    note = f" {record['note']}." if "note" in record else ""
    return f"Measured on one {where}, torch {versions['torch']}, timm {versions['timm']}.{note}"


def _backbones(rows: list[dict[str, Any]]) -> str:
    body = [
        (row["name"], f"{row['parameters'] / 1e6:.1f}", _megabytes(row["parameters"]))
        for row in rows
        if row["part"] == "backbone"
    ]
    return _table(("backbone, reduced to 256 channels", "parameters (M)", "gradients (MB)"), body)


def _heads(rows: list[dict[str, Any]]) -> str:
    heads = [row for row in rows if row["part"] == "head"]
    names = list(heads[0]["parameters"]) if heads else []
    body = [(row["name"], *(_megabytes(row["parameters"][name]) for name in names)) for row in heads]
    return _table(("head and classifier: gradients (MB)", *names), body)


def _processes(rows: list[dict[str, Any]]) -> str:
    body = []
    for row in rows:
        one, two = (max(run["images_per_second"] for run in row["runs"][n]) for n in ("1", "2"))
        speeds = f"{one:,.0f}", f"{two:,.0f}", f"{row['efficiency']:.0%}"
        body.append((str(row["batch"]), *speeds, f"{row['cpu_efficiency']:.0%}", f"{row['load_average']:.1f}"))
    header = ("images per step", "images/s, one process", "images/s, two", "efficiency", "by CPU time", "load average")
    return _table(header, body)


def _gpu(rows: list[dict[str, Any]]) -> str:
    body = [
        (row["data"], f"{row['image_size']} px", row["backbone"], row["head"], *_measured(row))
        for row in rows
        if "step_ms" in row
    ]
    table = _table(("data", "size", "backbone", "head", "step (ms)", "steps", "images/s", "peak memory (GB)"), body)
    return f"{table}\n\n{_measured_on('gpu')}"


def _measured(row: dict[str, Any]) -> tuple[str, ...]:
    peak = "—" if row["peak_gpu_bytes"] is None else f"{row['peak_gpu_bytes'] / 1e9:.1f}"
    return f"{row['step_ms']:.1f}", str(row["steps"]), f"{row['images_per_second']:,.0f}", peak


def _projection(rows: list[dict[str, Any]]) -> str:
    body = []
    for row in rows:
        if row["data"] in IMAGES and "step_ms" in row:
            hours = [_hours(run_hours(row, gpus)) for gpus in GPUS]
            efficiency = row["step_ms"] / 1e3 / step_seconds(row, GPUS[-1])
            memory = "—" if row["peak_gpu_bytes"] is None else f"{memory_bytes(row, 8) / 1e9:.1f}"
            body.append((row["data"], row["backbone"], row["head"], *hours, f"{efficiency:.0%}", memory))
    headers = ("data", "backbone", "head", *(f"{n} GPU{'s' if n > 1 else ''}" for n in GPUS))
    return _table((*headers, "efficiency at 64", "memory per GPU (GB)"), body)


def _hours(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min"


def _megabytes(parameters: int) -> str:
    return f"{GRADIENT_BYTES * parameters / 1e6:,.1f}"


def _table(header: tuple[str, ...], body: list[tuple[str, ...]]) -> str:
    rows = body or [("—",) * len(header)]
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, tuple(rule), *rows))
