"""Confusion matrices of trained networks, from their evaluations on the test data."""

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from .panel_plots import has_panels
from .results import Results
from .text_wrap import wrap_text
from .theme import colour_of

MAX_MATRICES = 6
_NAME_POINTS = 90  # room for a class name beside the matrix


def confusion_figure(results: Results) -> Figure | None:
    """Draw a matrix per configuration, in percent of the true class.

    None without evaluations, with several tasks, or if the configurations have different classes.
    """
    if has_panels(results):
        return None
    found = [(group.label, one) for group in results.groups for one in group.evaluations[:1]][:MAX_MATRICES]
    if not found or any(evaluation["classes"] != found[0][1]["classes"] for _, evaluation in found):
        return None
    columns = 2 if len(found) in (2, 4) else min(len(found), 3)
    lines = -(-len(found) // columns)
    figure = Figure(figsize=(3.6 * columns + 0.6, 3.4 * lines + 0.2), dpi=160)
    grid = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes in grid[len(found) :]:
        axes.axis("off")
    for axes, (label, evaluation) in zip(grid, found, strict=False):
        matrix = confusion_matrix(evaluation)
        percent = 100 * matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
        _draw(axes, percent, [str(name) for name in evaluation["classes"]])
        axes.set_title(f"{label}: {100 * evaluation['top1']:.1f} %")
    grid[0].set_ylabel("true class")
    return figure


def _draw(axes: Axes, percent: np.ndarray, classes: list[str]) -> None:
    # Start at the background colour, so that empty cells are dark on a dark page.
    shades = LinearSegmentedColormap.from_list("confusion", [mpl.rcParams["axes.facecolor"], colour_of(0)])
    axes.imshow(percent, cmap=shades, vmin=0, vmax=100, interpolation="nearest", aspect="equal")
    axes.grid(visible=False)
    axes.set_xlabel("predicted class")
    if len(classes) > 20:
        axes.set(xticks=[], yticks=[])
        return
    short = [wrap_text(name, _NAME_POINTS, size=8, lines=1)[0] for name in classes]
    axes.set_xticks(range(len(classes)), short, rotation=90 if max(map(len, classes)) > 2 else 0, fontsize=8)
    axes.set_yticks(range(len(classes)), short, fontsize=8)
    if len(classes) <= 12:
        for i, j in zip(*np.nonzero(percent >= 0.5), strict=True):
            colour = "white" if percent[i, j] > 55 else mpl.rcParams["text.color"]
            axes.text(j, i, f"{percent[i, j]:.0f}", ha="center", va="center", fontsize=7, color=colour)


def confusion_caption(results: Results) -> str:
    """Describe :func:`confusion_figure`, with the most frequent mistakes."""
    text = "Confusion on the test data, in percent of the true class"
    for group in results.groups:
        for evaluation in group.evaluations:
            pairs = confused_pairs(evaluation, 3)
            if pairs:
                worst = ", ".join(f"{true} predicted as {predicted} ({count})" for true, predicted, count in pairs)
                return f"{text}. Most frequent mistakes of {group.label}: {worst}."
    return f"{text}."


def confusion_matrix(evaluation: dict[str, Any]) -> np.ndarray:
    """Return the counts (K, K) of an evaluation: rows are true classes, columns predicted ones.

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
    """Return the most frequent mistakes: true class, predicted class, count."""
    wrong = sorted((cell for cell in evaluation["confusion"] if cell[0] != cell[1]), key=lambda cell: -cell[2])
    classes = evaluation["classes"]
    return [(classes[true], classes[predicted], count) for true, predicted, count in wrong[:most]]
