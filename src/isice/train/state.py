"""Counters and results of a run so far."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Totals:
    """Sums over the steps of an epoch."""

    loss: float = 0.0
    correct: float = 0.0
    images: int = 0
    seconds: float = 0.0


@dataclass
class TrainerState:
    """Counters and results of a run so far; saved in ``last`` checkpoints under these names."""

    done: int = 0  # completed epochs
    step: int = 0  # optimizer steps completed in the current epoch
    totals: Totals = field(default_factory=Totals)  # sums over these steps
    rows: list[dict[str, Any]] = field(default_factory=list)  # metrics of every completed epoch
    best: dict[str, Any] | None = None  # epoch and accuracy of the best epoch so far, if select_on asks for one
    seconds: float = 0.0  # wall-clock time of earlier sessions
    sessions: list[dict[str, Any]] = field(default_factory=list)  # time, commit and first step of every start
    # Training images that initialised the pooling: None if it needs none, 0 if a file has its
    # weights.
    start_images: int | None = None
