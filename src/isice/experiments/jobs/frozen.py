"""A linear classifier on the descriptors of a frozen network: the paper's SICE baseline."""

from dataclasses import dataclass
from typing import Any

from ...config import RunConfig
from ..job_configs import Job


@dataclass(frozen=True)
class FrozenConfig(RunConfig):
    """The network and the data; ``optim`` is not used."""


def classify_frozen_features(config: FrozenConfig) -> dict[str, Any]:
    """Return accuracy and image counts, see :func:`isice.train.frozen.frozen_run`."""
    from ...train.frozen import frozen_run

    return frozen_run(config)


JOB = Job(FrozenConfig, compute=classify_frozen_features)
