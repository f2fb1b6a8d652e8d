"""Names of any length below and above the maps: texts stay on their own tile, whatever they are."""

from itertools import combinations

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from isice.report.explain_page import Explanation, _caption, _maps
from isice.report.plots import style

PICTURE = np.full((8, 8), 0.5)
LONG = ("200.Common_Yellowthroat", "W" * 40, "a name of many words that goes on and on and does not come to an end")


def explanation(target, predicted=None, probability=0.69):
    nothing = np.zeros((0, 2))
    return Explanation(target, probability, predicted or target, PICTURE, PICTURE, np.eye(2), nothing, nothing, nothing)


def boxes(figure):
    """Where the texts of a figure are drawn, without empty ones."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    texts = [text for ax in figure.axes for text in (ax.title, ax.xaxis.label) if text.get_text()]
    return {text.get_text(): text.get_window_extent(canvas.get_renderer()) for text in texts}, figure.bbox


@pytest.mark.parametrize("heads", [1, 3])
def test_long_names_touch_neither_each_other_nor_the_edge(heads):
    options = ["isice(n_iter=5, sparsity=0.01, normalize='trace')", "isqrt_cov(n_iter=5)", "W" * 60][:heads]
    seen = {label: explanation(name, LONG[0]) for label, name in zip(options, LONG, strict=False)}
    with mpl.rc_context(style("light")):
        found, page = boxes(_maps(PICTURE, seen))
    assert len(found) == 1 + 2 * heads
    for (one, first), (other, second) in combinations(found.items(), 2):
        assert not first.overlaps(second), f"{one!r} and {other!r}"
    for name, box in found.items():
        assert page.x0 <= box.x0, name
        assert page.y0 <= box.y0, name
        assert box.x1 <= page.x1, name
        assert box.y1 <= page.y1, name


def test_probability_stays_whole():
    assert _caption(explanation("crow")) == "crow: 69 %"
    assert _caption(explanation("200.Common_Yellowthroat")) == "200.Common_\nYellowthroat\n69 %"
    assert _caption(explanation("crow", "wren")) == "crow: 69 %\n(predicted: wren)"
    assert _caption(explanation("W" * 40)).endswith("…\n69 %")
