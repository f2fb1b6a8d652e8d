"""The sizes of a dataset, from the table of datasets. No image is read."""

from dataclasses import dataclass
from typing import Any

from ..job_configs import Job


@dataclass(frozen=True)
class DatasetConfig:
    """The dataset to look up; ``seed`` is unused."""

    name: str = "digits"
    seed: int = 0


def dataset_sizes(config: DatasetConfig) -> dict[str, Any]:
    """Return the numbers of classes and images, which are checked whenever the dataset is loaded.

    Example:
        >>> dataset_sizes(DatasetConfig("cub200"))["images"]
        {'total': 11788, 'train': 5994, 'test': 5794}
    """
    from ...data import DATASETS, dataset_info

    info = dataset_info(config.name)
    if info.num_classes is None or info.train_size is None or info.test_size is None:
        fixed = [name for name, known in DATASETS.items() if known.train_size is not None]
        raise ValueError(f"dataset: expected one of known size ({', '.join(fixed)}), got {config.name!r}.")
    total = info.train_size + info.test_size
    return {"classes": info.num_classes, "images": {"total": total, "train": info.train_size, "test": info.test_size}}


JOB = Job(DatasetConfig, compute=dataset_sizes)
