"""Metrics of every epoch, logged to ``metrics.jsonl``, TensorBoard and Weights & Biases."""

import hashlib
import importlib.util
import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

from .._atomic import open_without_links, write_atomically
from ..config import RunConfig, to_dict

METRICS_FILE = "metrics.jsonl"
TENSORBOARD_FOLDER = "tensorboard"


class MetricsLogger:
    """Log one row per epoch.

    The logs are rewritten from ``rows``, the metrics of the epochs completed so far: a resumed run
    drops rows that are newer than its checkpoint.
    """

    def __init__(self, folder: Path, rows: list[dict[str, Any]], *, tensorboard: bool = True) -> None:
        self.path = folder / METRICS_FILE
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, "".join(_line(row) for row in rows))
        self._board = _create_board(folder / TENSORBOARD_FOLDER, rows) if tensorboard else None

    def append(self, row: dict[str, Any]) -> None:
        """Log the metrics of an epoch."""
        with open_without_links(self.path, "a", encoding="utf-8") as file:
            file.write(_line(row))
            file.flush()
            os.fsync(file.fileno())
        if self._board is not None:
            _log(self._board, row)
            self._board.flush()

    def close(self) -> None:
        """Close the TensorBoard log."""
        if self._board is not None:
            self._board.close()


class WandbLogger:
    """Weights & Biases as a logger of Lightning Fabric; its run begins with the first epoch.

    A resumed run continues the same W&B run, which its folder identifies.
    """

    def __init__(self, config: RunConfig, folder: Path) -> None:
        if importlib.util.find_spec("wandb") is None:
            raise ModuleNotFoundError(
                f"train: expected the package wandb for wandb={config.wandb}, which is not installed; "
                "run pip install wandb, or leave the setting out.",
                name="wandb",
            )
        self.config, self.folder = config, folder
        self._run: Any = None

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Log the metrics of an epoch."""
        if self._run is None:
            import wandb

            identity = hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()[:16]
            names = {"project": self.config.wandb, "name": self.folder.name, "id": identity, "resume": "allow"}
            self._run = wandb.init(**names, dir=str(self.folder), config=to_dict(self.config))
        self._run.log(metrics, step=step)

    def finalize(self, status: str) -> None:
        """End the W&B run."""
        if self._run is not None:
            self._run.finish()
            self._run = None


def read_metrics(folder: str | Path) -> list[dict[str, Any]]:
    """Read ``metrics.jsonl`` of a run folder, without an incomplete last line."""
    rows = []
    for line in (Path(folder) / METRICS_FILE).read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def _create_board(folder: Path, rows: list[dict[str, Any]]) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        warnings.warn("train: tensorboard is not installed, writing no TensorBoard logs.", stacklevel=4)
        return None
    # Rewritten from the rows: a killed process may leave an incomplete event file.
    shutil.rmtree(folder, ignore_errors=True)
    board = SummaryWriter(str(folder))
    for row in rows:
        _log(board, row)
    return board


def _log(board: Any, row: dict[str, Any]) -> None:
    for name, value in row.items():
        if name != "epoch":
            board.add_scalar(name, value, row["epoch"])


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"
