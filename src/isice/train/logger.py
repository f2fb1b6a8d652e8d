"""The numbers of a run by epoch, for people and programs: ``metrics.jsonl`` and TensorBoard."""

import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

METRICS_FILE = "metrics.jsonl"
TENSORBOARD_FOLDER = "tensorboard"


class MetricsLogger:
    """Writes one line per epoch. On resuming, lines after the checkpoint are dropped: those epochs come again.

    Args:
        folder: The run folder.
        rows: The epochs done so far, one dictionary each; the files are made to agree with them.
        tensorboard: Also write TensorBoard logs.
    """

    def __init__(self, folder: Path, rows: list[dict[str, Any]], *, tensorboard: bool = True) -> None:
        self.path = folder / METRICS_FILE
        folder.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_suffix(".partial")
        partial.write_text("".join(_line(row) for row in rows), encoding="utf-8")
        partial.replace(self.path)
        self._board = _create_board(folder / TENSORBOARD_FOLDER, rows) if tensorboard else None

    def append(self, row: dict[str, Any]) -> None:
        """Adds the numbers of an epoch."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line(row))
            file.flush()
            os.fsync(file.fileno())
        if self._board is not None:
            _log(self._board, row)
            self._board.flush()

    def close(self) -> None:
        """Closes the TensorBoard file."""
        if self._board is not None:
            self._board.close()


def read_metrics(folder: str | Path) -> list[dict[str, Any]]:
    """The rows of a run folder's ``metrics.jsonl``; a half-written last line is left out."""
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
        warnings.warn("train: no TensorBoard logs, tensorboard is not installed; pip install it.", stacklevel=4)
        return None
    # Written anew from the rows: event files of a killed process may end anywhere.
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
