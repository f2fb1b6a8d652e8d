"""Heat maps and class maps drawn over images, from plain arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure

from .text_wrap import wrap_text

HEAT, SIGNED = "inferno", "RdBu_r"
# Width of a tile in inches; font size and maximal line width of the captions below it, in points.
TILE_INCHES, CAPTION_SIZE = 1.7, 8.5
TILE_POINTS = 0.9 * 72 * TILE_INCHES
_KEYS = {"heat": (HEAT, ("weakest", "strongest")), "class": (SIGNED, ("against", "for the class"))}


@dataclass(frozen=True)
class MapRow:
    """One image with a map for each column."""

    picture: np.ndarray  # pixels (H, W, 3) or (H, W), in [0, 1]
    maps: Sequence[np.ndarray]  # one map (H, W) per column
    kind: Literal["heat", "class"] = "heat"  # coloured from minimum to maximum, or by sign
    captions: Sequence[str] = ()  # text below each map
    name: str = ""  # text left of the image


def heat_overlay(picture: np.ndarray, heat: np.ndarray) -> np.ndarray:
    """Lay a map over a grey image, from dark at its minimum to bright at its maximum: (H, W, 3)."""
    span = heat.max() - heat.min()
    scaled = (heat - heat.min()) / span if span > 0 else np.zeros_like(heat)
    colours: np.ndarray = mpl.colormaps[HEAT](scaled)[..., :3]
    return 0.35 * to_grey(picture) + 0.65 * colours


def class_overlay(picture: np.ndarray, signed: np.ndarray) -> np.ndarray:
    """Lay a signed map over a grey image, red where positive and blue where negative: (H, W, 3)."""
    # Clip to the 99 % quantile, so that a single extreme position does not hide the others.
    limit = np.quantile(np.abs(signed), 0.99) or np.abs(signed).max() or 1.0
    scaled = np.clip(signed / limit, -1, 1)
    cover: np.ndarray = np.abs(scaled)[..., None]
    colours: np.ndarray = mpl.colormaps[SIGNED](0.5 + 0.5 * scaled)[..., :3]
    blended: np.ndarray = (1 - cover) * (0.25 + 0.5 * to_grey(picture)) + cover * colours
    return blended


def to_grey(picture: np.ndarray) -> np.ndarray:
    """Remove the colour of an image (H, W, 3), with the weights of Rec. 601."""
    grey = picture @ np.array([0.299, 0.587, 0.114]) if picture.ndim == 3 else picture
    return np.repeat(np.clip(grey, 0, 1)[..., None], 3, axis=-1)


def maps_figure(rows: Sequence[MapRow], columns: Sequence[str], *, size: float = TILE_INCHES, dpi: int = 120) -> Figure:
    """Draw one row per image: the image itself, then its map for each of ``columns`` (heads).

    ``size`` is the width of a tile in inches.
    """
    for row in rows:
        if len(row.maps) != len(columns):
            raise ValueError(f"maps_figure: expected {len(columns)} maps, one per column, got {len(row.maps)}.")
    room = TILE_POINTS * size / TILE_INCHES
    titles = ["\n".join(wrap_text(name, room, size=10, weight="bold", lines=3)) for name in ("image", *columns)]
    lines = _max_lines(titles) - 1 + sum(_max_lines(row.captions) for row in rows)
    height, width = rows[0].picture.shape[:2]
    figure = Figure(
        figsize=(size * (len(columns) + 1) + 0.9, size * height / width * len(rows) + 0.18 * lines + 0.35), dpi=dpi
    )
    grid = figure.subplots(len(rows), len(columns) + 1, squeeze=False)
    for tiles, row in zip(grid, rows, strict=True):
        draw_tile(tiles[0], row.picture, "gray")
        tiles[0].set_ylabel(row.name)
        overlay = heat_overlay if row.kind == "heat" else class_overlay
        for index, (ax, values) in enumerate(zip(tiles[1:], row.maps, strict=True)):
            draw_tile(ax, overlay(row.picture, values))
            ax.set_xlabel(row.captions[index] if row.captions else "", fontsize=CAPTION_SIZE)
    for ax, title in zip(grid[0], titles, strict=True):
        ax.set_title(title, loc="center", fontsize=10)
    for kind, members in groupby(zip(rows, grid, strict=True), key=lambda member: member[0].kind):
        cmap, words = _KEYS[kind]
        axes = [ax for _, tiles in members for ax in tiles]
        bar = figure.colorbar(ScalarMappable(cmap=cmap), ax=axes, ticks=(0, 1), shrink=0.75, aspect=25, pad=0.015)
        bar.ax.set_yticklabels(words, fontsize=8.5)
        bar.outline.set_visible(False)
    return figure


def _max_lines(texts: Sequence[str]) -> int:
    return max((text.count("\n") + 1 for text in texts), default=0)


def draw_tile(ax: Axes, picture: np.ndarray, cmap: str | None = None) -> None:
    """Draw an image without ticks, grid and frame."""
    if picture.ndim == 2:
        ax.imshow(picture, cmap=cmap, vmin=0, vmax=1, interpolation="nearest")
    else:
        ax.imshow(np.clip(picture, 0, 1), interpolation="nearest")
    ax.set(xticks=[], yticks=[])
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set_visible(False)
