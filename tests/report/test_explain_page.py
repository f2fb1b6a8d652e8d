"""The page of ``isice explain``: layout of the texts, captions for the report."""

from itertools import combinations

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from isice.explanations import ChannelGraph, ExplainedImage, Explanation
from isice.report.explain_page import (
    explained_maps_figure,
    find_heat_maps,
    is_explained,
    write_explanations,
)
from isice.report.theme import style

PICTURE = np.full((8, 8), 0.5)
LONG = ("200.Common_Yellowthroat", "W" * 40, "a name of many words that goes on and on and does not come to an end")


def explanation(target, predicted=None):
    nothing = np.zeros((0, 2))
    graph = ChannelGraph(np.eye(2), nothing, nothing, nothing)
    return Explanation(target, 0.69, predicted or target, PICTURE, PICTURE, graph)


def boxes(figure):
    """Where the texts of a figure are drawn, without empty ones."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    texts = [text for ax in figure.axes for text in (ax.title, ax.xaxis.label) if text.get_text()]
    return {text.get_text(): text.get_window_extent(canvas.get_renderer()) for text in texts}, figure.bbox


@pytest.mark.parametrize("heads", [1, 2])
def test_long_names_touch_neither_each_other_nor_the_edge(heads):
    options = ["isice(n_iter=5, sparsity=0.01, normalize='trace')", "W" * 60][:heads]
    seen = {label: explanation(name, LONG[0]) for label, name in zip(options, LONG, strict=False)}
    with mpl.rc_context(style("light")):
        found, page = boxes(explained_maps_figure(ExplainedImage("bird", "bird", PICTURE, seen)))
    assert len(found) == 1 + 2 * heads
    for (one, first), (other, second) in combinations(found.items(), 2):
        assert not first.overlaps(second), f"{one!r} and {other!r}"
    for name, box in found.items():
        assert page.x0 <= box.x0, name
        assert page.y0 <= box.y0, name
        assert box.x1 <= page.x1, name
        assert box.y1 <= page.y1, name


@pytest.mark.parametrize(
    ("target", "predicted", "label"),
    [
        ("crow", None, "crow: 69 %"),
        ("200.Common_Yellowthroat", None, "200.Common_\nYellowthroat\n69 %"),
        ("crow", "wren", "crow: 69 %\n(predicted: wren)"),
    ],
)
def test_probability_stays_whole(target, predicted, label):
    image = ExplainedImage("bird", "bird", PICTURE, {"gap": explanation(target, predicted)})
    assert label in [ax.get_xlabel() for ax in explained_maps_figure(image).axes]


def test_captions_are_stored_for_the_report(tmp_path):
    folder = tmp_path / "heat_maps"
    images = [
        ExplainedImage("test:7", "test image 7", PICTURE, {"gap": explanation("crow")}),
        ExplainedImage("my/test-8.jpg", "test-8.jpg", PICTURE, {"gap": explanation("wren")}),
    ]
    written = write_explanations(images, folder, graphs=False)
    assert list(written) == ["html", "01-test-7-maps.png", "02-test-8-maps.png"]
    assert is_explained(folder)
    assert "<h2>test-8.jpg</h2>" in written["html"].read_text(encoding="utf-8")
    captions = [picture.caption for picture in find_heat_maps(tmp_path)]
    assert [caption.split(". ")[0] for caption in captions] == ["Heat maps of test image 7", "Heat maps of test-8.jpg"]
    write_explanations(images[1:], folder, graphs=False)
    assert [picture.path.name for picture in find_heat_maps(tmp_path)] == ["01-test-8-maps.png"]
