"""Sparse precision matrices: graph, path over λ and selection curve, from arrays."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from numpy.typing import ArrayLike

# The colour-blind safe palette of Okabe and Ito, without black, which vanishes on dark pages.
PALETTE = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#b5a800")
POSITIVE, NEGATIVE, NODE = PALETTE[0], PALETTE[3], "#57606a"


def plot_graph(
    partial_correlation: ArrayLike,
    labels: Sequence[str] | None = None,
    *,
    order: Sequence[int] | None = None,
    ax: Axes | None = None,
    title: str = "",
) -> Axes:
    """Plot variables on a circle, with an edge for each nonzero partial correlation.

    Positive edges are blue, negative ones orange; strong edges are wide and join neighbours.

    Args:
        partial_correlation: Matrix (D, D), zero where there is no edge.
        labels: Names of the variables.
        order: Order of the variables on the circle; by default, connected variables are neighbours.
        ax: Axes to draw on; new ones by default.
        title: Title of the axes.
    """
    matrix = np.asarray(partial_correlation, dtype=float)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"plot_graph: expected one square matrix (D, D), got shape {matrix.shape}.")
    size = len(matrix)
    names = [str(i) for i in range(size)] if labels is None else list(labels)
    if len(names) != size:
        raise ValueError(f"plot_graph: expected {size} labels, one per variable, got {len(names)}.")
    ax = ax or plt.figure(figsize=(6, 6)).add_subplot()
    angle = np.empty(size)
    angle[_circle_order(matrix) if order is None else np.asarray(order)] = 2 * np.pi * np.arange(size) / size
    points = np.column_stack([np.cos(angle), np.sin(angle)])
    rows, columns = np.nonzero(np.triu(matrix, 1))
    strength = matrix[rows, columns]
    ax.add_collection(
        LineCollection(
            [(points[i], points[j]) for i, j in zip(rows, columns, strict=True)],
            colors=[POSITIVE if value > 0 else NEGATIVE for value in strength],
            linewidths=0.5 + 6 * np.abs(strength),
            alpha=0.7,
        )
    )
    ax.scatter(points[:, 0], points[:, 1], s=60, color=NODE, zorder=2)
    style: dict[str, Any] = {"rotation_mode": "anchor", "va": "center", "fontsize": 9, "parse_math": False}
    for (x, y), turn, name in zip(1.06 * points, np.degrees(angle), names, strict=True):
        rotation, side = (turn + 180, "right") if 90 < turn % 360 < 270 else (turn, "left")
        ax.text(x, y, name, rotation=rotation, ha=side, **style)
    ax.set(xlim=(-1.7, 1.7), ylim=(-1.7, 1.7), aspect="equal", title=title)
    ax.axis("off")
    return ax


def _circle_order(matrix: np.ndarray) -> np.ndarray:
    """Order variables greedily: next is the one most strongly connected to the last few."""
    strength = np.abs(matrix) * ~np.eye(len(matrix), dtype=bool)
    order = [int(strength.sum(axis=0).argmax())]
    recent = strength[order[0]].copy()
    while len(order) < len(matrix):
        recent[order] = -1.0
        order.append(int(recent.argmax()))
        recent = 0.5 * np.maximum(recent, 0) + strength[order[-1]]
    return np.array(order)


def plot_path(
    sparsities: ArrayLike, partial_correlations: ArrayLike, *, chosen: float | None = None, ax: Axes | None = None
) -> Axes:
    """Plot every partial correlation against λ, and mark the selected λ.

    Args:
        sparsities: λ values (L,).
        partial_correlations: Matrices (L, D, D).
        chosen: The selected λ.
        ax: Axes to draw on; new ones by default.
    """
    grid, matrices = np.asarray(sparsities, dtype=float), np.asarray(partial_correlations, dtype=float)
    if matrices.ndim != 3 or len(matrices) != len(grid):
        raise ValueError(f"plot_path: expected matrices (L, D, D) for {len(grid)} values of λ, got {matrices.shape}.")
    ax = ax or plt.figure(figsize=(6, 4)).add_subplot()
    rows, columns = np.triu_indices(matrices.shape[-1], 1)
    curves = matrices[:, rows, columns]
    for curve in curves.T[np.any(curves != 0, axis=0)]:
        strongest = curve[np.abs(curve).argmax()]
        ax.plot(grid, curve, color=POSITIVE if strongest > 0 else NEGATIVE, alpha=0.6, linewidth=1)
    _mark(ax, chosen)
    ax.set(xscale="log", xlabel="sparsity λ", ylabel="partial correlation")
    ax.invert_xaxis()
    return ax


def plot_selection(model: Any, *, ax: Axes | None = None) -> Axes:
    """Plot the selection curve of a fitted :class:`isice.estimator.SparsePrecisionCV`."""
    if not hasattr(model, "selection_curve_"):
        raise ValueError(f"plot_selection: expected a fitted SparsePrecisionCV, got {model!r}; call fit() first.")
    ax = ax or plt.figure(figsize=(6, 4)).add_subplot()
    grid, curve = model.sparsities_, model.selection_curve_
    ax.plot(grid, curve, marker="o", markersize=3, color=POSITIVE)
    if model.selection_spread_ is not None:
        low, high = curve - model.selection_spread_, curve + model.selection_spread_
        ax.fill_between(grid, low, high, color=POSITIVE, alpha=0.2, label="± standard error")
    if model.selection == "stars":
        ax.axhline(model.instability, color=NODE, linewidth=1, label=f"accepted: {model.instability:g}")
    _mark(ax, model.sparsity_)
    names = {"cv": "held-out log-likelihood", "ebic": "EBIC", "stars": "edge instability"}
    ax.set(xscale="log", xlabel="sparsity λ", ylabel=names[model.selection])
    ax.invert_xaxis()
    ax.legend(frameon=False)
    return ax


def _mark(ax: Axes, chosen: float | None) -> None:
    if chosen is not None:
        ax.axvline(chosen, color=NODE, linestyle="--", linewidth=1, label=f"chosen: λ = {chosen:.3g}")
