"""Mean descriptors of the classes, head by head."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..records import ARRAYS_FILE
from .results import Group, Results


def descriptors_figure(results: Results, max_classes: int = 10, max_rows: int = 6) -> Figure | None:
    """Draw the mean image and mean descriptors of each class; None without descriptors."""
    found = [(group.label, arrays) for group in results.groups if (arrays := _arrays(group)) is not None]
    rows = [(label, arrays) for label, arrays in found if "matrices" in arrays or "vectors" in arrays][:max_rows]
    if not rows:
        return None
    names, pictures = rows[0][1]["classes"][:max_classes], rows[0][1]["images"][:max_classes]
    heights = [1.0] + [1.0 if "matrices" in arrays else 0.3 for _, arrays in rows]
    figure = Figure(figsize=(0.95 * len(names) + 1.0, sum(heights) + 0.4), dpi=160)
    grid = figure.subplots(len(rows) + 1, 1, height_ratios=heights)
    low, high = pictures.min(), pictures.max()
    _strip(grid[0], pictures.mean(axis=-1), "gray", (low, high), [str(name) for name in names])
    for axes, (label, arrays) in zip(grid[1:], rows, strict=True):
        values = arrays["matrices"] if "matrices" in arrays else arrays["vectors"][:, None, :]
        values = _sort_channels(values - values.mean(axis=0))[: len(names)]
        limit = np.quantile(np.abs(values), 0.995) or 1.0
        _strip(axes, values, "RdBu_r", (-limit, limit))
        axes.set_ylabel(label, rotation=0, ha="right", va="center", labelpad=8)
    return figure


def descriptors_caption(results: Results) -> str:
    """Describe :func:`descriptors_figure`."""
    return (
        "Input of the classifier by head: the mean over the test images of each class, minus the mean over all "
        "classes, each row on its own scale (red above, blue below). Second-order heads give a matrix, average "
        "pooling a row of channel means. Channels are sorted by the class that changes them most, separately for "
        "each head."
    )


def _strip(
    axes: Axes, tiles: np.ndarray, cmap: str, limits: tuple[float, float], names: list[str] | None = None
) -> None:
    """Draw tiles (K, H, W) side by side, each one unit wide."""
    for index, tile in enumerate(tiles):
        axes.imshow(tile, cmap=cmap, vmin=limits[0], vmax=limits[1], extent=(index + 0.04, index + 0.96, 1, 0))
        if names is not None:
            axes.text(index + 0.5, -0.08, names[index], ha="center", va="bottom", fontweight="bold")
    axes.set(xlim=(0, len(tiles)), ylim=(1, 0), xticks=[], yticks=[], aspect="auto")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def _sort_channels(values: np.ndarray) -> np.ndarray:
    """Sort the channels of (K, D, D) or (K, 1, D) by the class that deviates most."""
    matrix = values.shape[1] == values.shape[2]
    strength = np.abs(np.diagonal(values, axis1=1, axis2=2) if matrix else values[:, 0])
    order = np.lexsort((-strength.max(axis=0), strength.argmax(axis=0)))
    return values[:, order][:, :, order] if matrix else values[:, :, order]


def _arrays(group: Group) -> dict[str, np.ndarray] | None:
    for record in group.finished:
        path = Path(record["folder"]) / ARRAYS_FILE
        if path.is_file():
            with np.load(path, allow_pickle=False) as stored:
                return dict(stored)
    return None
