"""Spectra and zero patterns of matrices, from plain arrays."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from .theme import colour_of


def plot_spectra(spectra: Mapping[str, np.ndarray], *, ax: Axes | None = None) -> Axes:
    """Plot sorted eigenvalues by name, logarithmically; the legend counts those ≤ 0."""
    ax = ax or Figure(figsize=(5, 3.5), dpi=120).subplots()
    for index, (name, values) in enumerate(spectra.items()):
        values = np.sort(np.asarray(values, dtype=float))[::-1]
        positive = values[values > 0]
        left_out = len(values) - len(positive)
        label = f"{name} ({left_out} not positive)" if left_out else name
        # Each curve is thinner than the one before, so that coinciding curves stay visible.
        width = max(5.0 - 1.3 * index, 1.2)
        ax.plot(np.arange(1, len(positive) + 1), positive, color=colour_of(index), label=label, linewidth=width)
    ax.set(yscale="log", xlabel="eigenvalue number", ylabel="eigenvalue")
    ax.legend(fontsize=9)
    return ax


def plot_pattern(nonzero: np.ndarray, *, ax: Axes | None = None, title: str = "") -> Axes:
    """Plot which entries of a matrix are nonzero, with their share off the diagonal below."""
    ax = ax or Figure(figsize=(3, 3), dpi=120).subplots()
    nonzero = np.asarray(nonzero, dtype=bool)
    share = nonzero[~np.eye(len(nonzero), dtype=bool)].mean() if len(nonzero) > 1 else 0.0
    ax.imshow(nonzero, cmap=ListedColormap(["#ffffff", colour_of(0)]), vmin=0, vmax=1, interpolation="nearest")
    ax.set(xticks=[], yticks=[], xlabel=f"{100 * share:.1f} % not zero", title=title)
    ax.grid(visible=False)
    return ax
