"""Tables of docs/choosing.md: comparisons of poolings by training records, feature map sizes."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
from benchmarks.pages import MISSING, RESULTS, ROOT, filled, read_results, table
from generate_benchmarks import recorded_spec

from isice.config import AugmentConfig
from isice.data import dataset_info
from isice.metrics import mean_std
from isice.models.backbone import create_backbone
from isice.pooling import create_pooling

PAGE = ROOT / "docs" / "choosing.md"
SIZES = (224, 448)
BACKBONES = ("vgg16", "resnet50")  # strides 16 and 32
# Runs of code that always subtracted the means in partial_correlation.
CENTRED = "shrinkage_vgg16_cub200_224/search"
Record = dict[str, Any]
Head = tuple[str, int]  # pooling and channels


def pages() -> dict[Path, str]:
    """Return the page with its tables."""
    tables = {"records": comparisons(), "positions": positions()}
    return {PAGE: filled(PAGE.read_text(encoding="utf-8"), tables)}


def comparisons() -> str:
    """Return one table for every setting with at least two trained heads, the best first."""
    parts = []
    for setting, runs in sorted(_by_setting().items()):
        heads = defaultdict(list)
        for run in runs:
            model = run["config"]["model"]
            heads[model["pooling"], model["reduce"]].append(100 * run["accuracy"]["test"])
        if len(heads) < 2:
            continue
        images, known = _times(heads)
        best_first = sorted(heads.items(), key=lambda item: -sum(item[1]) / len(item[1]))
        rows = [
            (f"`{spec}`", *_numbers(spec, channels, values), known.get((spec, channels), MISSING))
            for (spec, channels), values in best_first
        ]
        header = ["pooling", "channels", "vector", "seeds", "test, %", f"ms for {images} images"]
        parts += [f"{setting}:", table(header, rows)]
    return "\n\n".join(parts) or MISSING


def _by_setting() -> dict[str, list[Record]]:
    """Return the finished runs by folder, network, images and recipe."""
    found = defaultdict(list)
    for folder, run in _runs():
        data, optim, model = (run["config"][part] for part in ("data", "optim", "model"))
        size = data["image_size"] or dataset_info(data["name"]).image_size
        rows, columns = map_size(model["backbone"], size)
        smoothing = f", label smoothing {optim['label_smoothing']:g}" if optim["label_smoothing"] else ""
        found[
            f"**{model['backbone']}, {size} px** ({rows} × {columns} = {rows * columns} positions), "
            f"{run['images']['train']:,} training images,\n{optim['epochs']} epochs{smoothing}{_augmentation(run)}\n"
            f"([{folder}](../benchmarks/results/{folder}/README.md))"
        ].append(run)
    return found


def _augmentation(run: Record) -> str:
    changed = run["config"].get("augment", {})
    changed = {key: value for key, value in changed.items() if value != getattr(AugmentConfig(), key)}
    mirrored = ", mirror averaging" if run["config"].get("eval_flip") else ""
    return "".join(f", {key} {value}" for key, value in changed.items()) + mirrored


def _runs() -> Iterator[tuple[str, Record]]:
    for path in sorted(RESULTS.rglob("record.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        if path.is_relative_to(RESULTS / CENTRED):
            model = run["config"]["model"]
            model["pooling"] = model["pooling"].replace("correlation(", "correlation(center=True, ")
        folder = path.relative_to(RESULTS).parts[0]
        tested = run.get("kind", "train") == "train" and run["status"] == "finished" and "test" in run["accuracy"]
        if tested and (RESULTS / folder / "README.md").is_file():
            yield folder, run


def _numbers(spec: str, channels: int, values: list[float]) -> tuple[str, ...]:
    summary = mean_std(values)
    accuracy = f"{summary.mean:.1f}" if len(values) == 1 else f"{summary.mean:.1f} ± {summary.std:.1f}"
    vector = create_pooling(spec, channels, num_classes=200).out_features
    return str(channels), f"{vector:,}", str(len(values)), accuracy


def _times(heads: Iterable[Head]) -> tuple[int, dict[Head, str]]:
    """Return the batch for which most heads were measured, and their forward and backward pass."""
    found = {images: {head: _time(*head, images) for head in heads} for images in (32, 128)}
    known = {images: {head: time for head, time in of.items() if time} for images, of in found.items()}
    images = max(known, key=lambda images: len(known[images]))
    return images, known[images]


def _time(spec: str, channels: int, images: int) -> str:
    return f"{costs[spec]:.2f}" if channels == 256 and spec in (costs := _costs(images)) else ""


@cache
def _costs(images: int) -> dict[str, float]:
    """Return milliseconds by spec at 256 channels, 14 × 14 positions; repeated timings first."""
    if images == 32:
        return {recorded_spec(row): row["forward_backward_ms"] for row in read_results("heads_cuda")["rows"]}
    rows = [row for row in read_results("gpu_speed_h200")["rows"] if row["part"] == "layer"]
    wanted = {"batch": images, "channels": 256, "side": 14, "dtype": "float32", "backend": "auto", "mode": "highest"}
    repeated = {row["head"]: row["forward_backward_ms"] for row in rows if wanted.items() <= row.items()}
    once = {recorded_spec(row): row["forward_backward_ms"] for row in read_results("heads_h200_batch128")["rows"]}
    return once | repeated


@cache
def map_size(backbone: str, size: int) -> tuple[int, int]:
    """Return height and width of the feature map of a square image."""
    with torch.device("meta"):  # shapes only
        height, width = create_backbone(backbone, img_size=size)(torch.zeros(1, 3, size, size)).shape[-2:]
    return int(height), int(width)


def positions() -> str:
    """Return the number of positions of the paper's backbones at some image sizes."""
    rows = []
    for name in BACKBONES:
        shapes = [map_size(name, size) for size in SIZES]
        rows.append((f"`{name}`", *(f"{height} × {width} = {height * width}" for height, width in shapes)))
    return table(["backbone", *(f"{size} px" for size in SIZES)], rows)
