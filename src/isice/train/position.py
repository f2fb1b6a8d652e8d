"""How far a run is, and which of its epochs is reported."""

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
class Position:
    """How far a run is: what a checkpoint adds to weights, optimizer and schedule.

    Attributes:
        done: Epochs completed.
        step: Optimizer steps done in the next epoch.
        totals: Sums over these steps.
        rows: The numbers of every completed epoch.
        best: Epoch and accuracy of the best epoch so far, where one is chosen.
        seconds: Time spent before the current session.
        sessions: When, and with which commit, the run was started and resumed.
    """

    done: int = 0
    step: int = 0
    totals: Totals = field(default_factory=Totals)
    rows: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Any] | None = None
    seconds: float = 0.0
    sessions: list[dict[str, Any]] = field(default_factory=list)


def resolve_selection(select_on: str, *, has_val: bool) -> str:
    """Where the reported epoch is chosen: ``"val"``, ``"test"``, or ``"last"`` for no choice.

    Example:
        >>> resolve_selection("auto", has_val=False)
        'last'
    """
    if select_on == "val" and not has_val:
        raise ValueError("train: expected a validation part for select_on=val, got none; set data.val_fraction=0.1.")
    if select_on == "auto":
        return "val" if has_val else "last"
    return select_on
