"""Training: a loop that fits on a screen, its optimizer, its checkpoints, and the record that a run leaves."""

from .checkpoint import Trained, load_trained
from .run import train_run

__all__ = ["Trained", "load_trained", "train_run"]
