"""All figures of a report, drawn from its results."""

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from .confusion_plots import confusion_caption, confusion_figure
from .descriptor_plots import DESCRIPTORS_CAPTION, descriptors_figure
from .grid_plots import grid_caption, grid_figure
from .pages import Picture
from .panel_plots import panels_caption, panels_figure
from .results import Results
from .samples_plots import SAMPLES_CAPTION, samples_figure
from .theme import narrow_variant, save_themed
from .training_plots import CURVES_CAPTION, accuracy_caption, accuracy_figure, curves_figure

_FIGURES: dict[str, tuple[Callable[[Results], Figure | None], Callable[[Results], str] | str]] = {
    "panels": (panels_figure, panels_caption),
    "samples": (samples_figure, SAMPLES_CAPTION),
    "grid": (grid_figure, grid_caption),
    "accuracy": (accuracy_figure, accuracy_caption),
    "curves": (curves_figure, CURVES_CAPTION),
    "confusion": (confusion_figure, confusion_caption),
    "descriptors": (descriptors_figure, DESCRIPTORS_CAPTION),
}


def draw_figures(results: Results, folder: Path) -> list[Picture]:
    """Draw every figure that has data, as ``name.png`` and ``name-dark.png``."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for name, (draw, caption) in _FIGURES.items():
        path = folder / f"{name}.png"
        try:
            if save_themed(partial(draw, results), path):
                found.append(Picture(name, path, caption if isinstance(caption, str) else caption(results)))
            if name == "panels":
                save_themed(partial(panels_figure, results, narrow=True), narrow_variant(path))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            # Damage that the checks of single files do not find must not stop the report.
            warnings.warn(f"report: expected data of {name}.png, got {error!r}. It is left out.", stacklevel=2)
    return found
