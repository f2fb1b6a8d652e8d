"""Overlays have the colours they claim, and figures show what they are given."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from isice.report.channel_graph_plots import BOTH, FIRST, SECOND, channel_graph_figure, pair_overlay
from isice.report.heat_map_plots import MapRow, class_overlay, heat_overlay, maps_figure
from isice.report.matrix_plots import plot_pattern, plot_spectra
from isice.report.theme import style

GREY = np.full((4, 4), 0.5)


def test_heat_is_brightest_where_strongest_and_flat_for_a_flat_map():
    heat = np.arange(16.0).reshape(4, 4)
    brightness = heat_overlay(GREY, heat).sum(axis=-1).ravel()
    assert brightness.argmax() == 15
    assert brightness.argmin() == 0
    flat = heat_overlay(GREY, np.full((4, 4), 7.0))
    assert np.isfinite(flat).all()
    assert np.ptp(flat.reshape(-1, 3), axis=0).max() == 0


def test_evidence_for_the_class_is_red_and_against_it_blue():
    signed = np.zeros((4, 4))
    signed[0, 0], signed[3, 3] = 2.0, -2.0
    shown = class_overlay(np.repeat(GREY[..., None], 3, axis=-1), signed)
    assert shown[0, 0, 0] > shown[0, 0, 2] + 0.2
    assert shown[3, 3, 2] > shown[3, 3, 0] + 0.2
    assert np.ptp(shown[1, 1]) == 0
    assert np.isfinite(class_overlay(GREY, np.zeros((4, 4)))).all()


def test_a_pair_has_three_colours():
    activations = np.zeros((2, 2, 2))
    activations[0, 0, :] = activations[1, :, 0] = 1.0
    shown = pair_overlay(np.zeros((2, 2)), activations)
    for position, colour in {(0, 0): BOTH, (0, 1): FIRST, (1, 0): SECOND}.items():
        np.testing.assert_allclose(shown[position], 0.9 * np.array(to_rgb(colour)) + 0.1 * 0.1, atol=1e-12)
    assert shown[1, 1].max() < 0.2


def test_maps_figure_has_a_tile_per_map_and_a_key_per_kind():
    rows = [MapRow(GREY, [GREY, GREY]), MapRow(GREY, [GREY, GREY], "class", ["a: 5 %", "b: 9 %"], "class maps")]
    figure = maps_figure(rows, ["gap", "isice"])
    assert len(figure.axes) == 6 + 2
    assert [ax.get_title(loc="center") for ax in figure.axes[:3]] == ["image", "gap", "isice"]
    assert figure.axes[5].get_xlabel() == "b: 9 %"
    with pytest.raises(ValueError, match="expected 2 maps, one per column, got 1"):
        maps_figure([MapRow(GREY, [GREY])], ["gap", "isice"])


def test_channel_graph_figure_names_its_pairs():
    pairs, strengths = np.array([[3, 14], [3, 5]]), np.array([0.5, -0.25])
    figure = channel_graph_figure(GREY, pairs, strengths, np.ones((2, 2, 4, 4)), title="isice")
    titles = [ax.get_title(loc="center") for ax in figure.axes]
    assert titles[:3] == ["isice", "3 – 14:  +0.50", "3 – 5:  −0.25"]
    assert {text.get_text() for text in figure.axes[0].texts} == {"3", "5", "14"}
    empty = channel_graph_figure(GREY, np.zeros((0, 2), int), np.zeros(0), np.zeros((0, 2, 4, 4)))
    assert not empty.axes[0].texts


def test_spectra_count_what_a_logarithm_cannot_show():
    with mpl.rc_context(style("dark")):
        ax = plot_spectra({"S": np.array([1.0, 3.0, -2.0])})
    assert ax.lines[0].get_ydata().tolist() == [3.0, 1.0]
    assert ax.get_legend().get_texts()[0].get_text() == "S (1 not positive)"


def test_a_pattern_says_how_much_is_not_zero():
    ax = plot_pattern(np.array([[True, True, False], [True, True, False], [False, False, True]]), title="S")
    assert ax.get_xlabel() == "33.3 % not zero"
