"""Training: a loop that fits on a screen, its optimizer, and the record that a run leaves."""

from .engine import train_run

__all__ = ["train_run"]
