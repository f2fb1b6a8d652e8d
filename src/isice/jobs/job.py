"""One cell of an experiment, whatever its kind, from its config to its record."""

import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..config import RunConfig
from ..data import DATASETS, dataset_info
from ..experiments.kinds import DatasetConfig
from ..inference.evaluate import evaluate_run
from ..train import train_run
from ..train.frozen import frozen_run
from ..train.launch import is_main_process
from ..train.record import EVALUATION_FILE, new_record, write_record
from .bench import measure
from .structure import estimation_error

Measure = Callable[[Any], dict[str, Any]]


def run_job(config: Any, folder: Path, label: str, *, kind: str = "train", force: bool = False) -> None:
    """Computes one config into a folder and leaves a record there, also of a failure.

    A training run goes on from its last checkpoint and is evaluated at its end.

    Args:
        config: A config of the class that :data:`isice.experiments.kinds.KINDS` has for ``kind``.
        folder: The folder of the run.
        label: What the progress display calls it.
        kind: What is computed.
        force: Start a training run anew.
    """
    if kind == "train":
        _train(config, folder, label, force)
    else:
        _recorded(MEASURES[kind], config, folder, kind)


def _train(config: RunConfig, folder: Path, label: str, force: bool) -> None:
    train_run(config, folder, label=label, resume="never" if force else "auto", record_refusal=True)
    if is_main_process() and not (folder / EVALUATION_FILE).is_file():
        evaluate_run(folder, settings=[f"device={config.device}", *_where(config)])


def _where(config: RunConfig) -> list[str]:
    return [] if config.data.root is None else [f"data.root={config.data.root}"]


def _recorded(measure: Measure, config: Any, folder: Path, kind: str) -> None:
    record = new_record(config) | {"kind": kind}
    start = time.perf_counter()
    try:
        record |= {"status": "finished", **measure(config)}
    except Exception as error:
        record |= {"status": "failed", "error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
        write_record(folder, record)
        raise
    write_record(folder, record | {"seconds": time.perf_counter() - start})


def dataset_facts(config: DatasetConfig) -> dict[str, Any]:
    """Classes and images as the table of datasets has them, which loading checks; nothing is read here.

    Example:
        >>> dataset_facts(DatasetConfig("cub200"))["images"]
        {'total': 11788, 'train': 5994, 'test': 5794}
    """
    info = dataset_info(config.name)
    if info.num_classes is None or info.train_size is None or info.test_size is None:
        fixed = [name for name, known in DATASETS.items() if known.train_size is not None]
        raise ValueError(f"dataset: expected one whose size is known ({', '.join(fixed)}), got {config.name!r}.")
    total = info.train_size + info.test_size
    return {"classes": info.num_classes, "images": {"total": total, "train": info.train_size, "test": info.test_size}}


MEASURES: dict[str, Measure] = {
    "frozen": frozen_run,
    "bench": measure,
    "structure": estimation_error,
    "dataset": dataset_facts,
}
