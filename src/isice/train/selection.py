"""The epoch that a run reports, and when a run stops early."""

from typing import Any

from ..config import RunConfig
from .stages import Stage


def resolve_selection(select_on: str, *, has_val: bool) -> str:
    """Return the split that the reported epoch is chosen on, or ``"last"`` for the last epoch.

    Example:
        >>> resolve_selection("auto", has_val=False)
        'last'
    """
    if select_on == "val" and not has_val:
        raise ValueError("train: expected a validation split for select_on=val, got none; set data.val_fraction=0.1.")
    if select_on == "auto":
        return "val" if has_val else "last"
    return select_on


def check_patience(config: RunConfig, selects_on: str) -> None:
    """Raise unless ``optim.patience`` has an accuracy to wait for."""
    if config.optim.patience is not None and selects_on == "last":
        raise ValueError(
            "train: expected an accuracy to watch for optim.patience, got select_on=last; set data.val_fraction=0.1 "
            "and select_on=val."
        )


def is_out_of_patience(stage: Stage, done: int, best: dict[str, Any] | None) -> bool:
    """Return whether ``optim.patience`` epochs of a stage have passed since the best one."""
    waited = done - max(stage.first - 1, 0 if best is None else best["epoch"])
    return stage.optim.patience is not None and waited >= stage.optim.patience
