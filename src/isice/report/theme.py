"""Matplotlib settings and colours of all figures, for light and dark pages."""

import base64
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogFormatter, NullFormatter

from .._atomic import write_atomically
from ..graph_plots import PALETTE

THEMES = {
    "light": {"paper": "#ffffff", "ink": "#1f2328", "faint": "#d8dee4"},
    "dark": {"paper": "#161b22", "ink": "#e6edf3", "faint": "#373e47"},
}


def style(theme: str = "light") -> dict[str, Any]:
    """Return the matplotlib settings of a theme, for ``matplotlib.rc_context``."""
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
    """Return the colour of the configuration at ``index``, the same in every figure."""
    return PALETTE[index % len(PALETTE)]


def dark_variant(path: Path) -> Path:
    """Return the path of the dark version of a figure."""
    return path.with_name(f"{path.stem}-dark{path.suffix}")


def narrow_variant(path: Path) -> Path:
    """Return the path of the version of a figure for phones."""
    return path.with_name(f"{path.stem}-narrow{path.suffix}")


def save_themed(draw: Callable[[], Figure | None], path: Path) -> bool:
    """Draw a figure once per theme, to ``path`` and its dark variant, which replace earlier ones.

    Without anything to draw, files of an earlier call are removed.

    Returns:
        Whether there was anything to draw.
    """
    files = {"light": path, "dark": dark_variant(path)}
    drawn = {file: _png(draw, theme) for theme, file in files.items()}
    for file, content in drawn.items():
        if content is None:
            file.unlink(missing_ok=True)
        else:
            write_atomically(file, content)
    return None not in drawn.values()


def _png(draw: Callable[[], Figure | None], theme: str) -> bytes | None:
    # A "$" in the name of a class or run is not the start of a formula.
    settings: Any = style(theme) | {"text.parse_math": False}
    with mpl.rc_context(settings):
        figure = draw()
        if figure is None:
            return None
        _use_plain_ticks(figure)
        canvas: Any = FigureCanvasAgg(figure)  # print_png has no annotations
        buffer = io.BytesIO()
        canvas.print_png(buffer)
        return buffer.getvalue()


def _use_plain_ticks(figure: Figure) -> None:
    """Format logarithmic ticks as numbers, because matplotlib writes them as formulas."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if isinstance(axis.get_major_formatter(), LogFormatter):
                axis.set_major_formatter(FormatStrFormatter("%g"))
            if isinstance(axis.get_minor_formatter(), LogFormatter):
                axis.set_minor_formatter(NullFormatter())


def draw_interval(axes: Axes, row: int, mean: float, low: float, high: float, colour: str) -> None:
    """Draw a dot with its number above, on a bar from ``low`` to ``high``."""
    axes.plot([low, high], [row, row], color=colour, linewidth=2.5, alpha=0.45, solid_capstyle="round")
    axes.plot([mean], [row], "o", color=colour, markersize=8)
    axes.annotate(f"{mean:.1f}", (mean, row), (0, 8), textcoords="offset points", ha="center", fontsize=9.5)


def legend_label(label: str) -> str:
    """Return a label that a legend shows: matplotlib leaves out those that begin with ``_``."""
    return f" {label}" if label.startswith("_") else label


def data_uri(path: Path) -> str:
    """Return a PNG file as a ``data:`` URI."""
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
