"""① Data: a table of datasets, each loaded as verified train / validation / test parts."""

from .datasets import DATASETS, DatasetInfo, Splits, dataset_info, load_splits

__all__ = ["DATASETS", "DatasetInfo", "Splits", "dataset_info", "load_splits"]
