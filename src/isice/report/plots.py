"""The pictures of a report, drawn from records and plain arrays, for light and for dark pages."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, MaxNLocator, NullLocator

from ..metrics import mean_std, wilson_interval
from .tables import Group, Results

THEMES = {
    "light": {"paper": "#ffffff", "ink": "#1f2328", "faint": "#d8dee4"},
    "dark": {"paper": "#161b22", "ink": "#e6edf3", "faint": "#373e47"},
}
# Okabe and Ito's colours, told apart by colour-blind readers too; black is left out, it is no colour on dark pages.
MOST_DOTS, MOST_CURVES = 40, 14
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#b5a800")


def style(theme: str = "light") -> dict[str, Any]:
    """matplotlib settings of a theme, for ``matplotlib.rc_context``: every picture of the project has this look.

    Example:
        >>> style("dark")["figure.facecolor"]
        '#161b22'
    """
    colours = THEMES[theme]
    return {
        **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), colours["paper"]),
        **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), colours["ink"]),
        **{"axes.edgecolor": colours["faint"], "grid.color": colours["faint"], "axes.grid": True},
        **{"axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "grid.linewidth": 0.8},
        **{"font.size": 10.5, "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlelocation": "left"},
        **{"xtick.major.size": 0, "ytick.major.size": 0, "legend.frameon": False},
        "figure.constrained_layout.use": True,
    }


def colour_of(index: int) -> str:
    """The colour of the configuration at ``index``, the same in every picture."""
    return _COLOURS[index % len(_COLOURS)]


def _trained(results: Results) -> list[tuple[int, Group]]:
    """The configurations with a trained network, numbered."""
    groups = [group for group in results.groups if any("accuracy" in record for record in group.finished)]
    return list(enumerate(groups))


def accuracy_figure(results: Results) -> Figure | None:
    """A dot per configuration with its uncertainty; None with none, or with more than fit."""
    groups = _trained(results)
    if not groups or len(groups) > MOST_DOTS:
        return None
    figure = Figure(figsize=(7.2, 0.9 + 0.45 * len(groups)), dpi=160)
    axes = figure.subplots()
    for row, (index, group) in enumerate(groups):
        mean, low, high = _interval(group)
        axes.plot([low, high], [row, row], color=colour_of(index), linewidth=2.5, alpha=0.45, solid_capstyle="round")
        axes.plot([mean], [row], "o", color=colour_of(index), markersize=8)
        axes.annotate(f"{mean:.1f}", (mean, row), (0, 8), textcoords="offset points", ha="center", fontsize=9.5)
    axes.set_yticks(range(len(groups)), [group.label for _, group in groups])
    axes.set_ylim(len(groups) - 0.5, -0.7)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.set_xlabel("test accuracy (%)")
    return figure


def _interval(group: Group) -> tuple[float, float, float]:
    """Accuracy in percent with ± one standard deviation over seeds, or with the sampling interval of a single run."""
    values = [100 * record["accuracy"]["test"] for record in group.finished]
    mean, std, n = mean_std(values)
    if n > 1:
        return mean, mean - std, mean + std
    low, high = wilson_interval(mean / 100, group.finished[0]["images"]["test"])
    return mean, 100 * low, 100 * high


def accuracy_caption(results: Results) -> str:
    """What the bars of :func:`accuracy_figure` are."""
    done = [record for _, group in _trained(results) for record in group.finished]
    if not done:
        return ""
    counts = {record["images"]["test"] for record in done}
    images = f"{counts.pop():,} test images" if len(counts) == 1 else "the test images"
    if all(len(group.finished) <= 1 for group in results.groups):
        return (
            f"Accuracy on {images}, one seed. Bars: 95 % sampling interval; overlapping bars mean no clear difference."
        )
    return f"Accuracy on {images}, mean over seeds. Bars: ± one standard deviation over seeds."


def curves_figure(results: Results) -> Figure | None:
    """Training loss, and training and validation accuracy, by epoch; None with none, or more than can be told apart."""
    groups = [(place, group) for place, group in _trained(results) if "epochs" in group.finished[0]]
    if not groups or len(groups) > MOST_CURVES:
        return None
    figure = Figure(figsize=(9.0, 3.6), dpi=160)
    left, right = figure.subplots(1, 2)
    for index, group in groups:
        colour = colour_of(index)
        left.plot(*_mean_curve(group, "train_loss"), color=colour, label=group.label, linewidth=1.8)
        right.plot(*_mean_curve(group, "train_accuracy", 100), color=colour, linestyle=(0, (2, 2)), linewidth=1.1)
        right.plot(*_mean_curve(group, "val_accuracy", 100), color=colour, label=group.label, linewidth=1.8)
    left.set(title="training loss", xlabel="epoch", yscale="log")
    left.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    left.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    left.yaxis.set_minor_locator(NullLocator())
    has_val = any("val_accuracy" in record["epochs"][0] for _, group in groups for record in group.finished)
    right.set(title=f"{'validation' if has_val else 'training'} accuracy (%)", xlabel="epoch")
    for axes in (left, right):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.set_ylim(bottom=max(right.get_ylim()[0], _lower_limit(groups)), top=100.5)
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=min(len(groups), 6))
    return figure


def _lower_limit(groups: list[tuple[int, Group]]) -> float:
    """The worst last accuracy, less some room: the first epochs must not squeeze the part worth looking at."""
    last = [100 * record["epochs"][-1]["train_accuracy"] for _, group in groups for record in group.finished]
    return max(min(last) - 25.0, 0.0)


def _mean_curve(group: Group, key: str, scale: float = 1.0) -> tuple[list[int], list[float]]:
    by_epoch: dict[int, list[float]] = {}
    for record in group.finished:
        for row in record["epochs"]:
            if key in row:
                by_epoch.setdefault(row["epoch"], []).append(scale * row[key])
    return list(by_epoch), [sum(values) / len(values) for values in by_epoch.values()]


def descriptors_figure(results: Results, max_classes: int = 10, max_rows: int = 6) -> Figure | None:
    """Mean pictures of the classes on top, and under each what every head makes of them."""
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


def _strip(
    axes: Axes, tiles: np.ndarray, cmap: str, limits: tuple[float, float], names: list[str] | None = None
) -> None:
    """Draws tiles (K, H, W) side by side in one row, each one unit wide."""
    for index, tile in enumerate(tiles):
        axes.imshow(tile, cmap=cmap, vmin=limits[0], vmax=limits[1], extent=(index + 0.04, index + 0.96, 1, 0))
        if names is not None:
            axes.text(index + 0.5, -0.08, names[index], ha="center", va="bottom", fontweight="bold")
    axes.set(xlim=(0, len(tiles)), ylim=(1, 0), xticks=[], yticks=[], aspect="auto")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def _sort_channels(values: np.ndarray) -> np.ndarray:
    """Sorts the channels of (K, D, D) or (K, 1, D) by the class whose diagonal (or entry) deviates most."""
    matrix = values.shape[1] == values.shape[2]
    strength = np.abs(np.diagonal(values, axis1=1, axis2=2) if matrix else values[:, 0])
    order = np.lexsort((-strength.max(axis=0), strength.argmax(axis=0)))
    return values[:, order][:, :, order] if matrix else values[:, :, order]


def _arrays(group: Group) -> dict[str, np.ndarray] | None:
    for record in group.finished:
        path = Path(record["folder"]) / "arrays.npz"
        if path.is_file():
            with np.load(path, allow_pickle=False) as stored:
                return dict(stored)
    return None
