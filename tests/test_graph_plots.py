"""The pictures show what the arrays say."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

from isice.estimator import SparsePrecisionCV
from isice.graph_plots import NEGATIVE, POSITIVE, plot_graph, plot_path, plot_selection

mpl.use("Agg")


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


def partial():
    matrix = np.eye(4)
    matrix[0, 2] = matrix[2, 0] = 0.5
    matrix[1, 3] = matrix[3, 1] = -0.1
    return matrix


def test_the_graph_has_one_line_per_edge_with_sign_and_strength():
    ax = plot_graph(partial(), ["a", "b", "c", "d"])
    (edges,) = ax.collections[:1]
    assert len(edges.get_segments()) == 2
    assert [mpl.colors.to_hex(c) for c in edges.get_colors()] == [POSITIVE, NEGATIVE]
    widths = edges.get_linewidths()
    assert widths[0] > widths[1] > 0
    assert {text.get_text() for text in ax.texts} == {"a", "b", "c", "d"}


def test_the_path_leaves_out_pairs_that_are_never_connected():
    path = np.stack([np.eye(4), partial()])
    ax = plot_path([0.5, 0.1], path, chosen=0.1)
    curves = [line for line in ax.lines if len(line.get_xdata()) == 2 and line.get_linestyle() == "-"]
    assert len(curves) == 2
    np.testing.assert_allclose(sorted(line.get_ydata()[1] for line in curves), [-0.1, 0.5])
    assert "λ = 0.1" in [line.get_label() for line in ax.lines][-1]


@pytest.mark.parametrize("selection", ["cv", "ebic", "stars"])
def test_the_selection_curve_is_drawn_for_every_rule(selection):
    x = np.random.default_rng(0).normal(size=(40, 3))
    model = SparsePrecisionCV(selection=selection, sparsities=4, n_subsamples=4).fit(x)
    ax = plot_selection(model)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), model.selection_curve_)
    assert bool(ax.collections) == (selection == "cv")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot_graph(np.ones((2, 3))), "expected one square matrix"),
        (lambda: plot_graph(np.eye(2), ["a"]), "expected 2 labels"),
        (lambda: plot_path([0.1], np.ones((2, 3, 3))), "expected matrices"),
        (lambda: plot_selection(SparsePrecisionCV()), r"call fit\(\) first"),
    ],
)
def test_wrong_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
