"""The strongest partial correlations between channels, as a graph and over the image."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ..graph_plots import PALETTE, plot_graph
from .heat_map_plots import draw_tile, to_grey

# Colours of the first channel of a pair, the second, and both; they differ in brightness too.
FIRST, SECOND, BOTH = PALETTE[5], "#f0e442", PALETTE[3]
_COLUMNS = 3  # of pairs


def channel_graph_figure(
    picture: np.ndarray,
    pairs: np.ndarray,
    strengths: np.ndarray,
    activations: np.ndarray,
    *,
    title: str = "",
    names: Sequence[str] | None = None,
) -> Figure:
    """Draw the graph of the strongest pairs of channels, and their activations.

    ``picture`` has pixels (H, W, 3) or (H, W) in [0, 1]; the other arrays are those of
    :class:`isice.explanations.ChannelGraph`. Channels without ``names`` are numbered.
    """
    lines = -(-max(len(pairs), 1) // _COLUMNS)
    figure = Figure(figsize=(3.6 + 1.75 * _COLUMNS, max(3.7, 2.05 * lines + 0.5)), dpi=120)
    panels: Any = figure.subfigures(1, 2, width_ratios=[3.6, 1.75 * _COLUMNS])
    left, right = panels
    words = [str(i) for i in range(int(np.max(pairs, initial=0)) + 1)] if names is None else list(names)
    _draw_graph(left.subplots(), pairs, strengths, title or "strongest partial correlations", words)
    for index, tile in enumerate(right.subplots(lines, _COLUMNS, squeeze=False).ravel()):
        if index >= len(pairs):
            tile.set_axis_off()
            continue
        draw_tile(tile, pair_overlay(picture, activations[index]))
        first, second = pairs[index]
        value = f"{strengths[index]:+.2f}".replace("-", "−")
        size = 9.5 if names is None else 8.5
        tile.set_title(f"{words[first]} – {words[second]}:  {value}", loc="center", fontsize=size, weight="normal")
    legend = {FIRST: "first channel", SECOND: "second channel", BOTH: "both"}
    handles = [Patch(color=colour, label=label) for colour, label in legend.items()]
    right.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8.5)
    return figure


def _draw_graph(ax: Axes, pairs: np.ndarray, strengths: np.ndarray, title: str, words: Sequence[str]) -> None:
    nodes = sorted({int(channel) for channel in np.ravel(pairs)})
    matrix = np.zeros((len(nodes), len(nodes)))
    for (first, second), strength in zip(np.asarray(pairs).tolist(), strengths, strict=True):
        i, j = nodes.index(first), nodes.index(second)
        matrix[i, j] = matrix[j, i] = strength
    if nodes:
        plot_graph(matrix, [words[node] for node in nodes], ax=ax)
        room, away = (1.3, 1.1) if max(map(len, words)) < 4 else (1.75, 1.24)  # names need more room than numbers
        ax.set(xlim=(-room, room), ylim=(-room, room))
        for text in ax.texts:  # upright: rotated digits such as 6 and 9 are ambiguous
            text.set(rotation=0, ha="center", va="center", position=away * np.asarray(text.get_position()))
    ax.set_axis_off()
    ax.set_title(title, loc="center")


def pair_overlay(picture: np.ndarray, activations: np.ndarray) -> np.ndarray:
    """Lay two channels (2, H, W) over a grey image, in a third colour where both are active."""
    both = activations.min(axis=0)
    parts = np.stack([activations[0] - both, activations[1] - both, both], axis=-1)
    total = parts.sum(axis=-1, keepdims=True)
    colours = parts @ np.array([to_rgb(colour) for colour in (FIRST, SECOND, BOTH)])
    colours = np.divide(colours, total, out=np.zeros_like(colours), where=total > 0)
    cover = 0.9 * activations.max(axis=0)[..., None]
    mixed: np.ndarray = (1 - cover) * (0.1 + 0.6 * to_grey(picture)) + cover * colours
    return mixed
