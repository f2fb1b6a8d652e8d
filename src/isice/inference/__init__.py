"""Use a trained network: evaluate, predict, export, push to the Hugging Face Hub."""

from ..train.scoring import Evaluation, probabilities
from .evaluate import evaluate_run
from .export import Exported, export_model, export_run
from .predict import Prediction, Predictor, find_images, load_predictor
from .push import push_run

__all__ = [
    "Evaluation",
    "Exported",
    "Prediction",
    "Predictor",
    "evaluate_run",
    "export_model",
    "export_run",
    "find_images",
    "load_predictor",
    "probabilities",
    "push_run",
]
