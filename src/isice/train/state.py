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
    """Counters and results of a run so far; saved in every ``last`` checkpoint under these names.

    Attributes:
        done: Completed epochs.
        step: Optimizer steps completed in the current epoch.
        totals: Sums over these steps.
        rows: Metrics of every completed epoch.
        best: Epoch and accuracy of the best epoch so far, if ``select_on`` asks for one.
        seconds: Wall-clock time of earlier sessions.
        sessions: Start time, commit and first step of every start and resume.
        start_images: Training images that initialised the pooling; None before the first step.
    """

    done: int = 0
    step: int = 0
    totals: Totals = field(default_factory=Totals)
    rows: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Any] | None = None
    seconds: float = 0.0
    sessions: list[dict[str, Any]] = field(default_factory=list)
    start_images: int | None = None
