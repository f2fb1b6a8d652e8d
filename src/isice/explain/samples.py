"""Explain a few test images for the report of trained runs."""

from collections.abc import Sequence
from pathlib import Path

from .._checks import check_int
from ..config import DataConfig, load_config
from ..data import load_splits
from .runs import explain_runs


def explain_samples(folders: Sequence[str | Path], out: str | Path, count: int = 2) -> dict[str, Path]:
    """Write heat maps of ``count`` test images, evenly spaced over the test split.

    Args:
        folders: Run folders. Only runs with the dataset of the first one are shown.
        out: Folder for the page and its figures; earlier ones are replaced.
        count: Number of images.
    """
    check_int("explain", "count", count, minimum=1)
    data = {Path(folder): _data_of(Path(folder)) for folder in folders}
    if not data:
        raise ValueError("explain: expected finished training runs with their checkpoints, got none.")
    first = next(iter(data.values()))
    alike = [folder for folder, config in data.items() if _what(config) == _what(first)]
    size = len(load_splits(first).test)
    images = [f"test:{size * number // min(count, size)}" for number in range(min(count, size))]
    return explain_runs(alike, images, out, graphs=False)


def _data_of(folder: Path) -> DataConfig:
    return load_config(folder / "config.toml").data


def _what(config: DataConfig) -> tuple[object, ...]:
    return config.name, config.partition, config.transform, config.image_size
