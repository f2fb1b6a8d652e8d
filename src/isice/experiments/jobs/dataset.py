"""The sizes of a dataset, counted in its files. No image is decoded."""

from dataclasses import dataclass, field
from typing import Any

from ...config import DataConfig
from ..job_configs import Job


@dataclass(frozen=True)
class DatasetConfig:
    """The dataset to count and its folder; ``seed`` is unused."""

    name: str = "digits"
    seed: int = 0
    root: str | None = field(default=None, metadata={"hashed": False})

    @property
    def data(self) -> DataConfig:
        """The settings to load the dataset with."""
        return DataConfig(name=self.name, root=self.root)


def dataset_sizes(config: DatasetConfig) -> dict[str, Any]:
    """Return the numbers of classes and of images that are there."""
    from ...data import dataset_info

    loaded = dataset_info(config.name).load(config.data)
    train, test = _count(loaded.train), _count(loaded.test)
    held_out = 0 if loaded.val is None else _count(loaded.val)
    images = {"total": train + held_out + test, "train": train + held_out, "test": test}
    return {"classes": len(loaded.classes), "images": images}


def _count(source: Any) -> int:
    """Count the images of a source; listed files that do not exist are left out."""
    from ...data.images import missing_files
    from ...data.sources import FileSource

    return len(source) - (len(missing_files(source.paths)) if isinstance(source, FileSource) else 0)


JOB = Job(DatasetConfig, compute=dataset_sizes)
