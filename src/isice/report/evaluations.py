"""What ``isice eval`` left beside a run: top-5, calibration, the confusion matrix."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from ..experiments.records import Record

FILE = "evaluation.json"


def evaluation_of(record: Record) -> dict[str, Any] | None:
    """The evaluation of the reported epoch on the test part, without flips; None if there is none."""
    path = Path(record["folder"]) / FILE
    if not path.is_file():
        return None
    found = json.loads(path.read_text(encoding="utf-8"))["evaluations"]
    plain = [one for one in found if one["split"] == "test" and one["which"] == "best" and not one["flip"]]
    return plain[-1] if plain else None


def confusion_matrix(evaluation: dict[str, Any]) -> np.ndarray:
    """The counts (K, K) of an evaluation: rows are true classes, columns predicted ones.

    Example:
        >>> confusion_matrix({"classes": ["a", "b"], "confusion": [[0, 0, 3], [1, 0, 1]]}).tolist()
        [[3, 0], [1, 0]]
    """
    size = len(evaluation["classes"])
    matrix = np.zeros((size, size), dtype=int)
    for true, predicted, count in evaluation["confusion"]:
        matrix[true, predicted] = count
    return matrix


def confused_pairs(evaluation: dict[str, Any], most: int = 8) -> list[tuple[str, str, int]]:
    """The most frequent mistakes: true class, predicted class, count."""
    wrong = sorted((cell for cell in evaluation["confusion"] if cell[0] != cell[1]), key=lambda cell: -cell[2])
    classes = evaluation["classes"]
    return [(classes[true], classes[predicted], count) for true, predicted, count in wrong[:most]]
