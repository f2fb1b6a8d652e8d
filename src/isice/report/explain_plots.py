"""Pictures of what networks look at: maps over images, graphs of channels, spectra and zeros. Plain arrays in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from .fitting import fitted
from .graph_plots import plot_graph
from .plots import colour_of

HEAT, SIGNED = "inferno", "RdBu_r"
# The first channel of a pair alone, the second alone, both: told apart by brightness too.
FIRST, SECOND, BOTH = "#56b4e9", "#f0e442", "#d55e00"
# Width of a tile in inches; font size of the captions below, and how wide their lines may be, both in points.
SIZE, CAPTION = 1.7, 8.5
TILE = 0.9 * 72 * SIZE
_KEYS = {"heat": (HEAT, ("weakest", "strongest")), "class": (SIGNED, ("against", "for the class"))}


@dataclass(frozen=True)
class MapRow:
    """One picture with a map for each column.

    Attributes:
        picture: Pixels (H, W, 3) or (H, W), in [0, 1].
        maps: One map (H, W) per column.
        kind: ``"heat"``, coloured from its least to its greatest value, or ``"class"``, positive and negative.
        captions: A line below each map.
        name: What the row shows, left of the picture.
    """

    picture: np.ndarray
    maps: Sequence[np.ndarray]
    kind: Literal["heat", "class"] = "heat"
    captions: Sequence[str] = ()
    name: str = ""


def heat_overlay(picture: np.ndarray, heat: np.ndarray, *, strength: float = 0.65) -> np.ndarray:
    """The picture in grey with the map over it, dark where it is weakest and bright where strongest: (H, W, 3).

    Example:
        >>> heat_overlay(np.zeros((4, 4)), np.arange(16.0).reshape(4, 4)).shape
        (4, 4, 3)
    """
    span = heat.max() - heat.min()
    scaled = (heat - heat.min()) / span if span > 0 else np.zeros_like(heat)
    return (1 - strength) * _grey(picture) + strength * mpl.colormaps[HEAT](scaled)[..., :3]


def class_overlay(picture: np.ndarray, signed: np.ndarray) -> np.ndarray:
    """The picture in grey, red where the map is positive and blue where negative, the stronger the fuller.

    Example:
        >>> class_overlay(np.zeros((4, 4)), np.linspace(-1, 1, 16).reshape(4, 4)).shape
        (4, 4, 3)
    """
    # A single strong position must not hide all others.
    limit = np.quantile(np.abs(signed), 0.99) or np.abs(signed).max() or 1.0
    scaled = np.clip(signed / limit, -1, 1)
    cover = np.abs(scaled)[..., None]
    return (1 - cover) * (0.25 + 0.5 * _grey(picture)) + cover * mpl.colormaps[SIGNED](0.5 + 0.5 * scaled)[..., :3]


def pair_overlay(picture: np.ndarray, activations: np.ndarray) -> np.ndarray:
    """The picture in grey with the two channels (2, H, W) of a pair in two colours, and a third where both fire.

    Example:
        >>> pair_overlay(np.zeros((4, 4)), np.ones((2, 4, 4))).shape
        (4, 4, 3)
    """
    both = activations.min(axis=0)
    parts = np.stack([activations[0] - both, activations[1] - both, both], axis=-1)
    total = parts.sum(axis=-1, keepdims=True)
    colours = parts @ np.array([to_rgb(colour) for colour in (FIRST, SECOND, BOTH)])
    colours = np.divide(colours, total, out=np.zeros_like(colours), where=total > 0)
    cover = 0.9 * activations.max(axis=0)[..., None]
    return (1 - cover) * (0.1 + 0.6 * _grey(picture)) + cover * colours


def _grey(picture: np.ndarray) -> np.ndarray:
    """A picture (H, W, 3) without colour, as Rec. 601 weighs red, green and blue."""
    grey = picture @ np.array([0.299, 0.587, 0.114]) if picture.ndim == 3 else picture
    return np.repeat(np.clip(grey, 0, 1)[..., None], 3, axis=-1)


def maps_figure(rows: Sequence[MapRow], columns: Sequence[str], *, size: float = SIZE, dpi: int = 120) -> Figure:
    """One row per picture: the picture itself, then its map for each of ``columns`` (heads).

    Args:
        rows: What to show.
        columns: Names of the maps.
        size: Width of a tile in inches.
        dpi: Dots per inch.
    """
    for row in rows:
        if len(row.maps) != len(columns):
            raise ValueError(f"maps_figure: expected {len(columns)} maps, one per column, got {len(row.maps)}.")
    room = TILE * size / SIZE
    titles = ["\n".join(fitted(name, room, size=10, weight="bold", lines=3)) for name in ("image", *columns)]
    lines = _lines(titles) - 1 + sum(_lines(row.captions) for row in rows)
    height, width = rows[0].picture.shape[:2]
    figure = Figure(
        figsize=(size * (len(columns) + 1) + 0.9, size * height / width * len(rows) + 0.18 * lines + 0.35), dpi=dpi
    )
    grid = figure.subplots(len(rows), len(columns) + 1, squeeze=False)
    for tiles, row in zip(grid, rows, strict=True):
        _tile(tiles[0], row.picture, "gray")
        tiles[0].set_ylabel(row.name)
        overlay = heat_overlay if row.kind == "heat" else class_overlay
        for index, (ax, values) in enumerate(zip(tiles[1:], row.maps, strict=True)):
            _tile(ax, overlay(row.picture, values))
            ax.set_xlabel(row.captions[index] if row.captions else "", fontsize=CAPTION)
    for ax, title in zip(grid[0], titles, strict=True):
        ax.set_title(title, loc="center", fontsize=10)
    for kind, members in groupby(zip(rows, grid, strict=True), key=lambda member: member[0].kind):
        cmap, words = _KEYS[kind]
        axes = [ax for _, tiles in members for ax in tiles]
        bar = figure.colorbar(ScalarMappable(cmap=cmap), ax=axes, ticks=(0, 1), shrink=0.75, aspect=25, pad=0.015)
        bar.ax.set_yticklabels(words, fontsize=8.5)
        bar.outline.set_visible(False)
    return figure


def _lines(texts: Sequence[str]) -> int:
    """The lines of the longest text."""
    return max((text.count("\n") + 1 for text in texts), default=0)


def channel_graph_figure(
    picture: np.ndarray,
    pairs: np.ndarray,
    strengths: np.ndarray,
    activations: np.ndarray,
    *,
    title: str = "",
    columns: int = 3,
    dpi: int = 120,
) -> Figure:
    """The strongest pairs of channels as a graph, and for each pair the regions where its channels fire.

    Args:
        picture: Pixels (H, W, 3) or (H, W), in [0, 1].
        pairs: Channel numbers (P, 2).
        strengths: Partial correlations (P,).
        activations: Maps (P, 2, H, W) in [0, 1].
        title: Title of the graph.
        columns: Pairs side by side.
        dpi: Dots per inch.
    """
    count = max(len(pairs), 1)
    lines = -(-count // columns)
    figure = Figure(figsize=(3.6 + 1.75 * columns, max(3.7, 2.05 * lines + 0.5)), dpi=dpi)
    panels: Any = figure.subfigures(1, 2, width_ratios=[3.6, 1.75 * columns])
    left, right = panels
    ax = left.subplots()
    nodes = sorted({int(channel) for channel in np.ravel(pairs)})
    matrix = np.zeros((len(nodes), len(nodes)))
    for (first, second), strength in zip(np.asarray(pairs).tolist(), strengths, strict=True):
        i, j = nodes.index(first), nodes.index(second)
        matrix[i, j] = matrix[j, i] = strength
    if nodes:
        plot_graph(matrix, [str(node) for node in nodes], ax=ax)
        ax.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3))
        for text in ax.texts:  # numbers that are turned are misread: 6 and 9
            text.set(rotation=0, ha="center", va="center", position=1.1 * np.asarray(text.get_position()))
    ax.set_axis_off()
    ax.set_title(title or "strongest partial correlations", loc="center")
    tiles = right.subplots(lines, columns, squeeze=False).ravel()
    for index, tile in enumerate(tiles):
        if index < len(pairs):
            _tile(tile, pair_overlay(picture, activations[index]))
            first, second = pairs[index]
            value = f"{strengths[index]:+.2f}".replace("-", "−")
            tile.set_title(f"{first} – {second}:  {value}", loc="center", fontsize=9.5, weight="normal")
        else:
            tile.set_axis_off()
    names = {FIRST: "first channel", SECOND: "second channel", BOTH: "both"}
    handles = [Patch(color=colour, label=name) for colour, name in names.items()]
    right.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8.5)
    return figure


def plot_spectra(spectra: Mapping[str, np.ndarray], *, ax: Axes | None = None) -> Axes:
    """Draws eigenvalues, sorted, on a logarithmic axis; those that are not positive are counted in the legend.

    Args:
        spectra: Name → eigenvalues.
        ax: Axes to draw on; new ones by default.
    """
    ax = ax or Figure(figsize=(5, 3.5), dpi=120).subplots()
    for index, (name, values) in enumerate(spectra.items()):
        values = np.sort(np.asarray(values, dtype=float))[::-1]
        positive = values[values > 0]
        left_out = len(values) - len(positive)
        label = f"{name} ({left_out} not positive)" if left_out else name
        # Curves that lie on each other stay visible: each is thinner than the one before.
        width = max(5.0 - 1.3 * index, 1.2)
        ax.plot(np.arange(1, len(positive) + 1), positive, color=colour_of(index), label=label, linewidth=width)
    ax.set(yscale="log", xlabel="eigenvalue number", ylabel="eigenvalue")
    ax.legend(fontsize=9)
    return ax


def plot_pattern(nonzero: np.ndarray, *, ax: Axes | None = None, title: str = "") -> Axes:
    """Draws which entries of a matrix are not zero, with their share off the diagonal below.

    Args:
        nonzero: Booleans (D, D).
        ax: Axes to draw on; new ones by default.
        title: Title.
    """
    ax = ax or Figure(figsize=(3, 3), dpi=120).subplots()
    nonzero = np.asarray(nonzero, dtype=bool)
    share = nonzero[~np.eye(len(nonzero), dtype=bool)].mean() if len(nonzero) > 1 else 0.0
    ax.imshow(nonzero, cmap=ListedColormap(["#ffffff", colour_of(0)]), vmin=0, vmax=1, interpolation="nearest")
    ax.set(xticks=[], yticks=[], xlabel=f"{100 * share:.1f} % not zero", title=title)
    ax.grid(visible=False)
    return ax


def _tile(ax: Axes, picture: np.ndarray, cmap: str | None = None) -> None:
    if picture.ndim == 2:
        ax.imshow(picture, cmap=cmap, vmin=0, vmax=1, interpolation="nearest")
    else:
        ax.imshow(np.clip(picture, 0, 1), interpolation="nearest")
    ax.set(xticks=[], yticks=[])
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set_visible(False)
