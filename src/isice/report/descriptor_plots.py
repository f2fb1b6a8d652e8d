"""Mean descriptors of the classes, head by head."""

import warnings
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..records import ARRAYS_FILE
from .results import Group, Results
from .text_wrap import wrap_text

# Width of a tile in inches, and the font size of the class names above it.
_TILE, _NAME_SIZE = 1.05, 8.0
MAX_CLASSES, MAX_ROWS = 10, 6
DESCRIPTORS_CAPTION = (
    "Top: one test image of each class. Below, the input of the classifier by head: the mean over the test images of "
    "each class, minus the mean over all classes, each row on its own scale (red above, blue below). Second-order "
    "heads give a matrix, average pooling a row of channel means. Channels are sorted by the class that changes them "
    "most, separately for each head."
)


def descriptors_figure(results: Results) -> Figure | None:
    """Draw an example image and the mean descriptors of each class; None without descriptors.

    Only configurations with the data of the first one are drawn.
    """
    found = [(group, arrays) for group in results.groups if (arrays := _arrays(group)) is not None]
    found = [(group, arrays) for group, arrays in found if "matrices" in arrays or "vectors" in arrays]
    rows = [(_label(group), arrays) for group, arrays in found if _data(group) == _data(found[0][0])][:MAX_ROWS]
    if not rows:
        return None
    first = rows[0][1]
    # Earlier runs stored the mean image of each class instead of an example.
    pictures = first["examples" if "examples" in first else "images"][:MAX_CLASSES]
    shown = first["classes"][:MAX_CLASSES]
    names = [wrap_text(str(name), 0.9 * 72 * _TILE, size=_NAME_SIZE, lines=3) for name in shown]
    heights = [1.0] + [1.0 if "matrices" in arrays else 0.3 for _, arrays in rows]
    lines = max(map(len, names))
    figure = Figure(figsize=(_TILE * len(names) + 1.6, sum(heights) + 0.3 + 0.15 * lines), dpi=160)
    grid = figure.subplots(len(rows) + 1, 1, height_ratios=heights)
    low, high = pictures.min(), pictures.max()
    pictures = pictures if pictures.shape[-1] == 3 else pictures.mean(axis=-1)
    _strip(grid[0], pictures, "gray", (low, high), ["\n".join(name) for name in names])
    for axes, (label, arrays) in zip(grid[1:], rows, strict=True):
        values = arrays["matrices"] if "matrices" in arrays else arrays["vectors"][:, None, :]
        values = _sort_channels(values - values.mean(axis=0))[: len(names)]
        limit = np.quantile(np.abs(values), 0.995) or 1.0
        _strip(axes, values, "RdBu_r", (-limit, limit))
        axes.set_ylabel(label, rotation=0, ha="right", va="center", labelpad=8, fontsize=9.5)
    return figure


def _strip(
    axes: Axes, tiles: np.ndarray, cmap: str, limits: tuple[float, float], names: list[str] | None = None
) -> None:
    """Draw tiles (K, H, W) or (K, H, W, 3) side by side, each one unit wide."""
    for index, tile in enumerate(tiles):
        axes.imshow(tile, cmap=cmap, vmin=limits[0], vmax=limits[1], extent=(index + 0.04, index + 0.96, 1, 0))
        if names is not None:
            axes.text(index + 0.5, -0.08, names[index], ha="center", va="bottom", fontsize=_NAME_SIZE)
    axes.set(xlim=(0, len(tiles)), ylim=(1, 0), xticks=[], yticks=[], aspect="auto")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def _sort_channels(values: np.ndarray) -> np.ndarray:
    """Sort the channels of (K, D, D) or (K, 1, D) by the class that deviates most."""
    matrix = values.shape[1] == values.shape[2]
    strength = np.abs(np.diagonal(values, axis1=1, axis2=2) if matrix else values[:, 0])
    order = np.lexsort((-strength.max(axis=0), strength.argmax(axis=0)))
    return values[:, order][:, :, order] if matrix else values[:, :, order]


def _label(group: Group) -> str:
    return "\n".join(line for label in group.labels for line in wrap_text(label, 90, size=9.5, lines=3))


def _data(group: Group) -> tuple[object, object]:
    data = group.finished[0]["config"]["data"]
    return data["name"], data.get("root")


def _arrays(group: Group) -> dict[str, np.ndarray] | None:
    for record in group.finished:
        path = Path(record["folder"]) / ARRAYS_FILE
        arrays = _read_arrays(path) if path.is_file() else None
        if arrays is not None:
            return arrays
    return None


def _read_arrays(path: Path) -> dict[str, np.ndarray] | None:
    """Read the descriptors of a run; a damaged file counts as none, with a warning."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays: dict[str, np.ndarray] = dict(stored)
        values = arrays["matrices" if "matrices" in arrays else "vectors"] if len(arrays) > 2 else None
        pictures = arrays["examples" if "examples" in arrays else "images"]
        whole = pictures.ndim == 4 and len(arrays["classes"]) == len(pictures)
        if not whole or (values is not None and len(values) != len(pictures)):
            raise ValueError("its arrays have other shapes")
    # numpy and zipfile raise many types for damaged files.
    except Exception as error:
        warnings.warn(f"report: expected arrays in {str(path)!r}, got {error!r}. It is left out.", stacklevel=2)
        return None
    return arrays
