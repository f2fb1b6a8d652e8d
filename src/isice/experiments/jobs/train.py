"""A training run, evaluated on the test data at its end."""

from pathlib import Path

from ...config import RunConfig
from ...records import EVALUATION_FILE
from ..job_configs import Job


def train(config: RunConfig, folder: Path, label: str, force: bool) -> None:
    """Train a run, or resume it from its last checkpoint, and evaluate it."""
    from ...inference import evaluate_run
    from ...train import train_run
    from ...train.launch import is_main_process

    train_run(config, folder, label=label, resume="never" if force else "auto", record_refusal=True)
    if is_main_process() and not (folder / EVALUATION_FILE).is_file():
        root = [] if config.data.root is None else [f"data.root={config.data.root}"]
        evaluate_run(folder, settings=[f"device={config.device}", *root])


JOB = Job(RunConfig, run=train)
