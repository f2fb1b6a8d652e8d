"""A training run, evaluated on the test data at its end."""

from pathlib import Path

from ...config import RunConfig
from ..job_configs import Job


def train(config: RunConfig, folder: Path, label: str, force: bool) -> None:
    """Train a run, or resume it from its last checkpoint."""
    from ...train import train_run

    train_run(config, folder, label=label, resume="never" if force else "auto", record_refusal=True)


JOB = Job(RunConfig, run=train)
