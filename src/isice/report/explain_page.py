"""The page of ``isice explain``: heat maps, class maps and channel graphs of images."""

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from .._atomic import write_atomically
from ..explanations import ExplainedImage, Explanation
from .channel_graph_plots import channel_graph_figure
from .heat_map_plots import CAPTION_SIZE, TILE_POINTS, MapRow, maps_figure
from .pages import Picture, render
from .text_wrap import wrap_text
from .theme import dark_variant, save_themed

# Folder of the heat maps that are drawn for a report.
HEAT_MAPS = "heat_maps"
_PAGE, _CAPTIONS = "explain.html", "captions.json"
_MAPS_CAPTION = (
    "Top: the mean of the last feature maps, as in the appendix of the paper; it does not depend on a class. "
    "Bottom: contributions to the score of the class, by its gradient; red is for the class, blue against it. "
    "Every map has its own scale."
)
_GRAPH_CAPTION = (
    "{label}: the pairs among its {channels} channels with the strongest partial correlations in this image (blue "
    "edges positive, orange negative), and where these channels are active, relative to the maximum of each channel. "
    "For a head that computes no inverse covariance, the one of seven Newton–Schulz steps is shown."
)


def write_explanations(images: Sequence[ExplainedImage], folder: Path, *, graphs: bool = True) -> dict[str, Path]:
    """Write all figures and ``explain.html``, replacing those of an earlier call.

    ``captions.json`` keeps the captions of the heat maps, for the report of the folder's runs. The
    paths written are returned: ``"html"``, and the figures by their file names.
    """
    folder.mkdir(parents=True, exist_ok=True)
    patterns = ("[0-9][0-9]-*-maps*.png", "[0-9][0-9]-*-graph-*.png")
    earlier = {path for pattern in patterns for path in folder.glob(pattern)}
    sections = {f"{number:02d}-{_slug(image.name)}": image for number, image in enumerate(images, start=1)}
    pictures = {stem: _draw_section(image, folder, stem, graphs) for stem, image in sections.items()}
    maps = {own[0].path.name: f"Heat maps of {sections[stem].title}. {_MAPS_CAPTION}" for stem, own in pictures.items()}
    labels = list(images[0].explanations)
    text = render(
        "explain.html.jinja",
        title=f"What {_listed(labels)} look{'' if len(labels) > 1 else 's'} at",
        sections=[(sections[stem].title, own) for stem, own in pictures.items()],
    )
    page = folder / _PAGE
    write_atomically(folder / _CAPTIONS, json.dumps(maps, indent=1, ensure_ascii=False))
    write_atomically(page, text)
    written = {picture.path.name: picture.path for own in pictures.values() for picture in own}
    for path in earlier - {file for picture in written.values() for file in (picture, dark_variant(picture))}:
        path.unlink()
    return {"html": page} | written


def is_explained(folder: Path) -> bool:
    """Return whether a folder has a page of :func:`write_explanations`."""
    return (folder / _PAGE).is_file()


def find_heat_maps(folder: Path) -> list[Picture]:
    """Return the heat maps in the sub-folders ``explain`` and ``heat_maps`` of a folder of runs."""
    found = []
    for own in (folder / "explain", folder / HEAT_MAPS):
        captions = _read_captions(own / _CAPTIONS)
        paths = sorted(own.glob("*-maps.png"))
        found += [Picture("heat maps", path, captions.get(path.name, _MAPS_CAPTION)) for path in paths]
    return found


def _read_captions(path: Path) -> dict[str, str]:
    """Return the captions by file name; none if the file is damaged or, as earlier, missing."""
    try:
        captions = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    found = captions.items() if isinstance(captions, dict) else ()
    return {name: caption for name, caption in found if isinstance(caption, str)}


def _draw_section(image: ExplainedImage, folder: Path, stem: str, graphs: bool) -> list[Picture]:
    """Draw the heat maps of an image, then a channel graph for each network."""
    pictures = [_draw(folder / f"{stem}-maps.png", partial(explained_maps_figure, image), _MAPS_CAPTION)]
    for label, found in image.explanations.items() if graphs else ():
        caption = _GRAPH_CAPTION.format(label=label, channels=len(found.graph.partial_correlation))
        pairs = (found.graph.pairs, found.graph.strengths, found.graph.activations)
        draw = partial(channel_graph_figure, image.picture, *pairs, title=label)
        pictures.append(_draw(folder / f"{stem}-graph-{_slug(label)}.png", draw, caption))
    return pictures


def _draw(path: Path, draw: Callable[[], Figure], caption: str) -> Picture:
    save_themed(draw, path)
    return Picture(path.stem, path, caption)


def explained_maps_figure(image: ExplainedImage) -> Figure:
    """Draw the heat maps of all networks in one row and their class maps below."""
    seen = list(image.explanations.values())
    rows = [
        MapRow(image.picture, [found.heat for found in seen], "heat", name="feature maps"),
        MapRow(image.picture, [found.class_map for found in seen], "class", [_label(f) for f in seen], "class maps"),
    ]
    return maps_figure(rows, list(image.explanations))


def _label(found: Explanation) -> str:
    """Return the class and its probability, which goes to its own line below a long name."""
    probability = f"{100 * found.probability:.0f} %"
    lines = wrap_text(f"{found.target}: {probability}", TILE_POINTS, size=CAPTION_SIZE)
    if len(lines) > 1:
        lines = [*wrap_text(found.target, TILE_POINTS, size=CAPTION_SIZE), probability]
    if found.target != found.predicted:
        lines += wrap_text(f"(predicted: {found.predicted})", TILE_POINTS, size=CAPTION_SIZE, lines=3)
    return "\n".join(lines)


def _slug(name: str) -> str:
    """Return a short name without folders, suffix and characters that are awkward in files."""
    return re.sub(r"[^\w-]+", "-", Path(name).stem).strip("-")[:80]


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
