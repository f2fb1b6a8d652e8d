"""Load the network of a run folder."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..config import RunConfig, from_dict
from ..models import Network
from ..models.create import build_network
from ..models.saved_arguments import check_arguments
from ..records import read_record
from .anomaly import first_nonfinite_weights
from .checkpoint import load_weights_into, read_checkpoint


@dataclass(frozen=True)
class Trained:
    """A trained network with its classes, config and record.

    Attributes:
        config: The config of the run.
        model: The network, in eval mode on the CPU.
        classes: Class names, in the order of the logits.
        record: The record of the run; empty while the run has not ended.
        epoch: Number of completed epochs when the weights were saved.
    """

    config: RunConfig
    model: Network
    classes: tuple[str, ...]
    record: dict[str, Any]
    epoch: int


def load_trained(folder: str | Path, which: str = "best") -> Trained:
    """Load the network of a run folder.

    Args:
        folder: The folder that :func:`isice.train.train_run` wrote.
        which: ``"best"``, the epoch that the record reports, or ``"last"``, the newest.
    """
    folder = Path(folder)
    _check_run_folder(folder)
    checkpoint = read_checkpoint(folder, which)
    meta = checkpoint.meta
    if meta["network"] is None:
        raise ValueError(
            f"load_trained: expected a network made by create_model in {str(folder)!r}, got a custom model; "
            f"build it yourself and load checkpoints/{which}/model.safetensors."
        )
    model = build_network(**check_arguments(meta["network"], str(folder)))
    load_weights_into(model, checkpoint.weights, str(folder))
    broken = first_nonfinite_weights(model)
    if broken is not None:
        raise FloatingPointError(
            f"load_trained: expected finite weights in {str(folder)!r}, got others in {broken}: the run has diverged; "
            "train it again with a lower optim.lr."
        )
    config = from_dict(meta["config"])
    return Trained(
        # A file may not start a download.
        config=replace(config, data=replace(config.data, download=False)),
        model=model.eval(),
        classes=tuple(meta["classes"]),
        record=read_record(folder) or {},
        epoch=meta["epoch"],
    )


def _check_run_folder(folder: Path) -> None:
    if (folder / "checkpoints").is_dir():
        return
    runs = sorted(path.parent for path in folder.glob("*/checkpoints"))
    record = read_record(folder) if folder.is_dir() else None
    if runs:
        what = f"a folder of runs; name one of them, such as {str(runs[0])!r}"
    elif not folder.exists():
        what = "which does not exist; train first"
    elif folder.is_file():
        what = "which is a file; name its folder"
    elif record is not None:
        what = f"a run without weights (status {record['status']!r}); train it, or restore its checkpoints"
    else:
        what = "which has no checkpoints/; train first (isice train --out FOLDER), or name another folder"
    raise FileNotFoundError(f"run: expected a run folder, got {str(folder)!r}, {what}.")
