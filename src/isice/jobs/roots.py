"""Where the datasets of a sweep lie, and which of them are missing before anything runs."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ..config import RunConfig
from ..data import dataset_info
from ..experiments.loader import Cell


def with_roots(cells: Iterable[Cell], data_root: str | Path | None) -> list[Cell]:
    """The cells, in which a dataset without a ``data.root`` of its own is looked for in ``data_root/<its name>``.

    Example:
        >>> from isice.experiments.loader import load_experiment
        >>> with_roots(load_experiment("table2").cells(), "data")[0].config.data.root
        'data/imagenet100'
    """
    return [cell if data_root is None else _with_root(cell, Path(data_root)) for cell in cells]


def _with_root(cell: Cell, data_root: Path) -> Cell:
    if not _needs_files(cell) or cell.config.data.root is not None:
        return cell
    data = replace(cell.config.data, root=str(data_root / cell.config.data.name))
    return replace(cell, config=replace(cell.config, data=data))  # where data lie is no part of the hash


def missing_data(cell: Cell) -> str | None:
    """What is missing to load the dataset of a training run, in words; None if nothing is."""
    if not _needs_files(cell):
        return None
    data = cell.config.data
    if data.root is None:
        return "no folder given"
    if data.download or Path(data.root).expanduser().is_dir():
        return None
    return f"{data.root} does not exist"


def check_data(cells: Iterable[Cell]) -> None:
    """Raises one error that names every dataset of the cells whose files are missing."""
    missing = {cell.config.data.name: reason for cell in cells if (reason := missing_data(cell)) is not None}
    if missing:
        listed = ", ".join(f"{name} ({reason})" for name, reason in missing.items())
        raise FileNotFoundError(
            f"run: expected a folder for every dataset, missing: {listed}; give --data-root DIR (or ISICE_DATA=DIR) "
            f"with one sub-folder per dataset, such as DIR/{next(iter(missing))}, or --set data.root=FOLDER for a "
            "single dataset. --limit leaves datasets out, --dry-run shows the runs."
        )


def _needs_files(cell: Cell) -> bool:
    return isinstance(cell.config, RunConfig) and not dataset_info(cell.config.data.name).embedded
