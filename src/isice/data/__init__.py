"""① Data: a table of datasets, loaded and verified as train, validation and test splits."""

from .datasets import DATASETS, DatasetInfo, dataset_info
from .gpu_cache import GpuBatches
from .loading import create_loader
from .sources import Split
from .splits import Splits, load_splits

__all__ = ["DATASETS", "DatasetInfo", "GpuBatches", "Split", "Splits", "create_loader", "dataset_info", "load_splits"]
