"""Curves and class descriptors: nothing is cut off, nothing overlaps."""

import json
from itertools import pairwise

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg

from isice.report.descriptor_plots import descriptors_figure
from isice.report.results import load_results
from isice.report.theme import style
from isice.report.training_plots import accuracy_figure, curves_figure


def test_curves_show_every_epoch(tmp_path, write_run):
    write_run(tmp_path, "gap", 0, 0.9)
    path = tmp_path / "gap-0" / "record.json"
    record = json.loads(path.read_text())
    for row, accuracy in zip(record["epochs"], (0.02, 0.5, 0.95), strict=True):
        row |= {"train_accuracy": accuracy, "val_accuracy": accuracy}
    path.write_text(json.dumps(record))
    right = curves_figure(load_results(tmp_path)).axes[1]
    assert right.get_ylim()[0] <= 2.0


def test_a_long_spec_leaves_room_for_the_accuracy(tmp_path, write_run):
    options = "ridge='oas', center=True, learn_ridge=True, learn_scale=True, standardize=True"
    write_run(tmp_path, f"partial_correlation({options})", 0, 0.9)
    with mpl.rc_context(style()):
        figure = accuracy_figure(load_results(tmp_path))
    FigureCanvasAgg(figure).draw()
    (label,) = figure.axes[0].get_yticklabels()
    assert label.get_window_extent().x0 >= 0
    assert figure.axes[0].get_window_extent().width > 0.4 * figure.bbox.width


def test_long_class_names_do_not_overlap(tmp_path, write_run):
    write_run(tmp_path, "gap", 0, 0.9)
    names = np.array(["001.Black_footed_Albatross", "004.Groove_billed_Ani", "200.Common_Yellowthroat_of_the_north"])
    examples = np.random.default_rng(0).random((3, 8, 8, 3))
    np.savez(tmp_path / "gap-0" / "arrays.npz", classes=names, examples=examples, vectors=np.eye(3))
    figure = descriptors_figure(load_results(tmp_path))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
    # Photographs are shown in colour, as they are.
    np.testing.assert_allclose(figure.axes[0].images[0].get_array(), examples[0])
