"""The page of ``isice explain``: the maps and graphs of some images for some heads, self-contained."""

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from .explain_plots import CAPTION, TILE, MapRow, channel_graph_figure, maps_figure
from .fitting import fitted
from .plots import THEMES, style

_PAGE = "explain.html"


@dataclass(frozen=True)
class Explanation:
    """What one network makes of one picture.

    Attributes:
        target: The class whose map is shown.
        probability: What the network gives that class.
        predicted: The class it predicts.
        heat: Mean of the last feature maps (H, W).
        class_map: Where the class gets its score from (H, W).
        partial_correlation: Partial correlations of the channels (C, C).
        pairs: The strongest pairs (P, 2).
        strengths: Their partial correlations (P,).
        activations: Where their channels fire (P, 2, H, W).
    """

    target: str
    probability: float
    predicted: str
    heat: np.ndarray
    class_map: np.ndarray
    partial_correlation: np.ndarray
    pairs: np.ndarray
    strengths: np.ndarray
    activations: np.ndarray


def write_explanations(
    images: Sequence[tuple[str, np.ndarray, Mapping[str, Explanation]]], folder: Path, *, graphs: bool = True
) -> dict[str, Path]:
    """Draws everything into ``folder`` and writes ``explain.html``, in place of what an earlier call left there.

    Args:
        images: For each image its name, its pixels (H, W, 3) and what each network makes of it, by label.
        folder: Where to write.
        graphs: Whether to draw graphs of channels too.

    Returns:
        The paths written: ``"html"``, and the pictures by their file names.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _remove_earlier(folder)
    paths: dict[str, Path] = {}
    sections = []
    for number, (name, picture, seen) in enumerate(images):
        stem = f"{number + 1:02d}-{_file_name(name)}"
        shown = [_draw(folder, f"{stem}-maps", partial(_maps, picture, seen), MAPS_CAPTION)]
        for label, found in seen.items() if graphs else ():
            caption = _GRAPH_CAPTION.format(label=label, channels=len(found.partial_correlation))
            draw = partial(channel_graph_figure, picture, found.pairs, found.strengths, found.activations, title=label)
            shown.append(_draw(folder, f"{stem}-graph-{_file_name(label)}", draw, caption))
        sections.append({"name": Path(name).name, "pictures": shown})
        paths |= {entry["file"]: folder / entry["file"] for entry in shown}
    labels = list(images[0][2])
    page = folder / _PAGE
    template = Environment(
        loader=PackageLoader("isice.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    ).get_template("explain.html.jinja")
    page.write_text(
        template.render(title=f"What {_listed(labels)} look{'' if len(labels) > 1 else 's'} at", sections=sections),
        encoding="utf-8",
    )
    return {"html": page, **paths}


MAPS_CAPTION = (
    "Top: the mean of the last feature maps, which is what the appendix of the paper shows; no class is involved. "
    "Bottom: where the score of the class comes from, by its gradient; red speaks for the class, blue against it. "
    "Every map has its own scale."
)
_GRAPH_CAPTION = (
    "{label}: the pairs among its {channels} channels with the strongest partial correlations in this image (blue "
    "edges positive, orange negative), and where they fire, each channel as a part of its own maximum. A head without "
    "an inverse covariance of its own is shown with that of seven Newton–Schulz steps."
)


def _remove_earlier(folder: Path) -> None:
    """Removes what an earlier call wrote, so that no picture outlives its page; nothing else."""
    for path in [folder / _PAGE, *folder.glob("[0-9][0-9]-*-maps*.png"), *folder.glob("[0-9][0-9]-*-graph-*.png")]:
        path.unlink(missing_ok=True)


def is_explained(folder: Path) -> bool:
    """Whether a folder has a page of :func:`write_explanations`."""
    return (folder / _PAGE).is_file()


def _maps(picture: np.ndarray, seen: Mapping[str, Explanation]) -> Figure:
    captions = [_caption(found) for found in seen.values()]
    rows = [
        MapRow(picture, [found.heat for found in seen.values()], "heat", name="feature maps"),
        MapRow(picture, [found.class_map for found in seen.values()], "class", captions, name="class maps"),
    ]
    return maps_figure(rows, list(seen))


def _caption(found: Explanation) -> str:
    """The class and its probability, on a line of its own below a name that needs the whole width of a tile."""
    probability = f"{100 * found.probability:.0f} %"
    lines = fitted(f"{found.target}: {probability}", TILE, size=CAPTION)
    if len(lines) > 1:
        lines = [*fitted(found.target, TILE, size=CAPTION), probability]
    if found.target != found.predicted:
        lines += fitted(f"(predicted: {found.predicted})", TILE, size=CAPTION, lines=3)
    return "\n".join(lines)


def _draw(folder: Path, stem: str, draw: Callable[[], Figure], caption: str) -> dict[str, str]:
    """Draws one picture for light and for dark pages; returns what the page needs of it."""
    entry = {"name": stem, "file": f"{stem}.png", "caption": caption}
    for theme in THEMES:
        path = folder / f"{stem}{'' if theme == 'light' else '-dark'}.png"
        look: Any = style(theme)
        with mpl.rc_context(look):
            FigureCanvasAgg(draw()).print_png(path)
        entry[theme] = "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
    return entry


def _file_name(name: str) -> str:
    """The name without folders, suffix and characters that are awkward in file names."""
    return re.sub(r"[^\w-]+", "-", Path(name).stem).strip("-")


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
