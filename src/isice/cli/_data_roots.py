"""The data folders of a sweep, and a check for missing datasets before anything runs."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ..config import DataConfig
from ..experiments.jobs.dataset import DatasetConfig
from ..experiments.loader import Cell

# Name and folder of a dataset.
DatasetKey = tuple[str, str | None]


def with_roots(cells: Iterable[Cell], data_root: str | Path | None) -> list[Cell]:
    """Set ``data.root`` to ``data_root/<dataset>`` in the cells that have none."""
    return [cell if data_root is None else _with_root(cell, Path(data_root)) for cell in cells]


def _with_root(cell: Cell, data_root: Path) -> Cell:
    data = _data_of(cell)
    if data is None or data.root is not None:
        return cell
    root = str(data_root / data.name)  # the config hash does not depend on it
    config = cell.config
    if isinstance(config, DatasetConfig):
        return replace(cell, config=replace(config, root=root))
    return replace(cell, config=replace(config, data=replace(data, root=root)))


def dataset_key(cell: Cell) -> DatasetKey | None:
    """Return the dataset and folder of a cell, or None if it reads no image files."""
    data = _data_of(cell)
    return None if data is None else (data.name, data.root)


def missing_data(cells: Iterable[Cell]) -> dict[DatasetKey, str]:
    """Return the datasets that cannot be loaded, with the reason. No image is decoded.

    Runs also need all images; a table or figure of datasets shows those that are there.
    """
    configs: dict[DatasetKey, DataConfig] = {}
    trained: set[DatasetKey] = set()
    for cell in cells:
        if (data := _data_of(cell)) is not None:
            configs[data.name, data.root] = data
            if not isinstance(cell.config, DatasetConfig):
                trained.add((data.name, data.root))
    reasons = {key: _missing(config, all_images=key in trained) for key, config in configs.items()}
    return {key: reason for key, reason in reasons.items() if reason is not None}


def _missing(config: DataConfig, *, all_images: bool) -> str | None:
    if config.root is None:
        return "no folder given"
    if config.download:
        return None
    root = Path(config.root).expanduser()
    if not root.is_dir():
        return f"{config.root} {'is a file' if root.exists() else 'does not exist'}"
    from ..data import dataset_info
    from ..data.splits import checked_classes

    info = dataset_info(config.name)
    try:
        loaded = info.load(config)
        if all_images:
            checked_classes(config, info, loaded)
    except (ValueError, OSError) as error:
        return str(error).removeprefix("data: ").rstrip(".")
    return None


def check_data(cells: Iterable[Cell]) -> None:
    """Raise one error that names every dataset that cannot be loaded."""
    missing = missing_data(cells)
    if missing:
        listed = ", ".join(f"{name} ({reason})" for (name, _), reason in missing.items())
        raise FileNotFoundError(
            f"run: expected the files of every dataset; missing: {listed}; give --data-root DIR (or ISICE_DATA=DIR) "
            f"with one sub-folder per dataset, such as DIR/{next(iter(missing))[0]}, or --set data.root=FOLDER for a "
            "single dataset. --limit dataset=NAME selects some, --dry-run lists the runs."
        )


def _data_of(cell: Cell) -> DataConfig | None:
    """Return the data settings of a cell, or None if it reads no image files."""
    from ..data import dataset_info

    data: DataConfig | None = getattr(cell.config, "data", None)
    return None if data is None or dataset_info(data.name).embedded else data
