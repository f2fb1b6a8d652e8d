"""A linear classifier on the descriptors of a frozen network: the paper's SICE baseline."""

from typing import Any

from ...config import RunConfig
from ..job_configs import Job


def classify_frozen_features(config: RunConfig) -> dict[str, Any]:
    """Return accuracy and image counts, see :func:`isice.train.frozen.frozen_run`."""
    from ...train.frozen import frozen_run

    return frozen_run(config)


JOB = Job(RunConfig, compute=classify_frozen_features)
