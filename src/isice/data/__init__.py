"""① Data: a table of datasets, each loaded as verified train / validation / test parts."""

from .datasets import DATASETS, DatasetInfo, dataset_info
from .parts import Part
from .splits import Splits, load_splits

__all__ = ["DATASETS", "DatasetInfo", "Part", "Splits", "dataset_info", "load_splits"]
