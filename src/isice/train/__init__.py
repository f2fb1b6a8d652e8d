"""Train one run: the loop, its optimizer, checkpoints, resuming and the record."""

from .run import train_run
from .trained import Trained, load_trained

__all__ = ["Trained", "load_trained", "train_run"]
