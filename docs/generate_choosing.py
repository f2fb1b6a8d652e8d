"""Tables of docs/choosing.md: poolings by training records, feature map sizes."""

import json
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from benchmarks.pages import MISSING, RESULTS, ROOT, filled, table

from isice.config import AugmentConfig
from isice.data import DATASETS, dataset_info
from isice.metrics import mean_std
from isice.models.backbone import create_backbone

PAGE = ROOT / "docs" / "choosing.md"
SIZES = (224, 448)
BACKBONES = ("vgg16", "resnet50")  # strides 16 and 32
POOLINGS = ("partial_correlation", "isqrt_cov", "isice", "precision", "gap")
CHANNELS = 256
# Runs of code that always subtracted the means in partial_correlation.
CENTRED = "shrinkage_vgg16_cub200_224/search"
Record = dict[str, Any]


class Setting(NamedTuple):
    """What runs that are compared have in common; ``folder`` is that of their records."""

    data: str
    size: int
    backbone: str
    images: int
    epochs: int
    recipe: str
    folder: str


def pages() -> dict[Path, str]:
    """Return the page with its tables."""
    tables = {"records": comparisons(), "positions": positions()}
    return {PAGE: filled(PAGE.read_text(encoding="utf-8"), tables)}


def comparisons() -> str:
    """Return a row for every setting in which at least two of the poolings were trained."""
    rows = []
    for setting, found in sorted(_by_setting().items()):
        if len(found) > 1:
            link = f"[{setting.epochs} epochs](../benchmarks/results/{setting.folder}/README.md)"
            place = f"{setting.backbone}, {setting.data}, {setting.size} px"
            facts = f"{place}, {link} of {setting.images:,} images, {setting.recipe}"
            rows.append((facts, *(_accuracy(found.get(pooling, [])) for pooling in POOLINGS)))
    return table(["network, dataset, training", *(f"`{pooling}`" for pooling in POOLINGS)], rows)


def _by_setting() -> dict[Setting, dict[str, list[float]]]:
    """Return the accuracies by setting and pooling."""
    found: dict[Setting, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for folder, run in _runs():
        data, optim, model = (run["config"][part] for part in ("data", "optim", "model"))
        size = data["image_size"] or dataset_info(data["name"]).image_size
        images, epochs = run["images"]["train"], optim["epochs"]
        setting = Setting(_dataset(data["name"], folder), size, model["backbone"], images, epochs, _recipe(run), folder)
        found[setting][model["pooling"]].append(100 * run["accuracy"]["test"])
    return found


def _dataset(name: str, records: str) -> str:
    """Return the dataset of a run; a folder of images is named in the folder of the records."""
    return next((known for known in DATASETS if known in records), name) if name == "folder" else name


def _recipe(run: Record) -> str:
    """Return how a run differs from one without label smoothing and augmentation but flips."""
    changed = run["config"].get("augment", {})
    words = [f"{key} {value:g}" for key, value in changed.items() if value != getattr(AugmentConfig(), key)]
    smoothing = run["config"]["optim"]["label_smoothing"]
    words = [f"label smoothing {smoothing:g}", *words] if smoothing else words
    words += ["mirror averaging"] if run["config"].get("eval_flip") else []
    return ", ".join(words) or "flips only"


def _runs() -> Iterator[tuple[str, Record]]:
    """Return the finished runs of the poolings at their defaults, with their folder."""
    for path in sorted(RESULTS.rglob("record.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        folder = path.relative_to(RESULTS).parts[0]
        tested = run.get("kind", "train") == "train" and run["status"] == "finished" and "test" in run["accuracy"]
        if not tested or path.is_relative_to(RESULTS / CENTRED) or not (RESULTS / folder / "README.md").is_file():
            continue
        model = run["config"]["model"]
        if model["pooling"] in POOLINGS and model["reduce"] == CHANNELS:
            yield folder, run


def _accuracy(values: list[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.1f}" if values else MISSING
    summary = mean_std(values)
    return f"{summary.mean:.1f} ± {summary.std:.1f}"


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
