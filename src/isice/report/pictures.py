"""All pictures of a report: each drawn for light and for dark pages, if there are data for it."""

from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from .confusion_plots import confusion_caption, confusion_figure
from .grid_plots import grid_caption, grid_figure
from .plots import THEMES, accuracy_caption, accuracy_figure, curves_figure, descriptors_figure, style
from .tables import Results

# Folder of the heat maps that are drawn for a report.
HEAT_MAPS = "heat_maps"

_PICTURES: dict[str, tuple[Callable[[Results], Figure | None], Callable[[Results], str]]] = {
    "grid": (grid_figure, grid_caption),
    "accuracy": (accuracy_figure, accuracy_caption),
    "curves": (
        curves_figure,
        lambda _: "Training loss and accuracy by epoch; means over seeds. Dashed: training accuracy.",
    ),
    "confusion": (confusion_figure, confusion_caption),
    "descriptors": (
        descriptors_figure,
        lambda _: (
            "What each head hands to its classifier: the mean over test images of each class, minus the mean over all "
            "classes, each row on its own scale (red above, blue below). A matrix for the second-order heads, a row of "
            "channel means for average pooling. Channels are sorted by the class that moves them most, head by head."
        ),
    ),
}


def draw_all(results: Results, folder: Path) -> dict[str, str]:
    """Draws every picture for which there are data into ``folder``; returns file stem → caption.

    Each picture is written as ``stem.png`` for light pages and ``stem-dark.png`` for dark ones.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for stem, (draw, caption) in _PICTURES.items():
        saved = [_save(draw, results, folder, stem, theme) for theme in THEMES]
        if all(saved):
            drawn[stem] = caption(results)
    return drawn


def _save(draw: Callable[[Results], Figure | None], results: Results, folder: Path, stem: str, theme: str) -> bool:
    path = folder / f"{stem}{'' if theme == 'light' else '-dark'}.png"
    path.unlink(missing_ok=True)  # a picture of an earlier report must not outlive its data
    with mpl.rc_context(style(theme)):  # type: ignore[arg-type]
        figure = draw(results)
        if figure is not None:
            FigureCanvasAgg(figure).print_png(path)
    return figure is not None


def explained(folder: Path) -> list[tuple[Path, Path]]:
    """Heat maps in a folder of runs, those of ``isice explain --out FOLDER/explain`` first: light and dark pictures."""
    light = [path for name in ("explain", HEAT_MAPS) for path in sorted((folder / name).glob("*-maps.png"))]
    return [(path, path.with_name(f"{path.stem}-dark.png")) for path in light]
