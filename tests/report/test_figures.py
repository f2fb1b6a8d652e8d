"""Pictures of grids and confusions are drawn from what the records say."""

import json

import matplotlib as mpl
import numpy as np
import pytest

from isice.config import to_dict
from isice.experiments.loader import load_experiment
from isice.experiments.manifest import describe
from isice.report.confusion_plots import confused_pairs, confusion_caption, confusion_figure
from isice.report.grid_plots import grid_caption, grid_figure
from isice.report.results import load_results


def write(folder, cell, kind, **numbers):
    record = {"status": "finished", "kind": kind, "hash": cell.hash, "config": to_dict(cell.config), "started": "2026"}
    record |= {"seed": cell.config.seed, **numbers}
    (folder / cell.name).mkdir(parents=True)
    (folder / cell.name / "record.json").write_text(json.dumps(record))


@pytest.fixture
def structure(tmp_path):
    experiment = load_experiment("figure3")
    for cell in experiment.cells():
        if cell.at["samples"] in ("120", "400"):
            error = {"sice": 1.0, "mle": 9.0}[cell.at["estimator"]] + cell.config.seed
            write(tmp_path, cell, "structure", relative_error=error, error=0.0)
    return load_results(tmp_path, describe(experiment))


def test_lines_with_their_deviation_in_panels(structure):
    figure = grid_figure(structure)
    assert [axes.get_title() for axes in figure.axes] == ["structure dense", "structure sparse"]
    left = figure.axes[0]
    lines = [container.lines[0] for container in left.containers]
    expected = [[[120, 2], [400, 2]], [[120, 10], [400, 10]]]  # means over seeds 0, 1, 2
    np.testing.assert_allclose([line.get_xydata() for line in lines], expected)
    segments = left.containers[0].lines[2][0].get_segments()
    np.testing.assert_allclose(segments[0][:, 1], [1, 3])  # ± one standard deviation
    assert (left.get_xscale(), left.get_yscale()) == ("log", "log")
    assert "paper" not in grid_caption(structure)


def test_bars_with_the_paper_beside_them(tmp_path):
    experiment = load_experiment("table5")
    for cell, seconds in zip(experiment.cells(), (0.1, 0.2, 0.3, 0.4, 0.5, 0.6), strict=True):
        write(tmp_path, cell, "bench", batch_seconds=seconds)
    figure = grid_figure(load_results(tmp_path, describe(experiment)))
    (axes,) = figure.axes
    np.testing.assert_allclose([bar.get_width() for bar in axes.patches], [1, 2, 3, 4, 5, 6])
    np.testing.assert_allclose([float(line.get_xdata()[0]) for line in axes.lines][3], 5.20)
    assert axes.get_yticklabels()[0].get_text() == "GAP"


def test_published_lines_are_drawn_beside_ours(tmp_path):
    experiment = load_experiment("table8")
    chosen = [cell for cell in experiment.cells() if cell.at["dataset"] == "cub200" and cell.at["head"] == "20.0"]
    for cell in chosen:
        write(tmp_path, cell, "train", accuracy={"test": 0.8}, images={}, parameters={}, epochs=[])
    figure = grid_figure(load_results(tmp_path, describe(experiment)))
    (ours,) = [c.lines[0] for c in figure.axes[0].containers]
    np.testing.assert_allclose(ours.get_xydata(), [[20, 80]])
    dashed = [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]
    birds = next(line for line in dashed if line.get_color() == ours.get_color())
    np.testing.assert_allclose(birds.get_ydata(), [86.54, 86.31, 86.40, 86.52, 86.73, 86.59, 86.45])


def test_nothing_to_draw(tmp_path):
    for name in ("figure3", "table5", "digits"):
        results = load_results(tmp_path, describe(load_experiment(name)))
        assert grid_figure(results) is None
        assert confusion_figure(results) is None


def test_confusion_in_percent_of_the_true_class(tmp_path, write_run):
    write_run(tmp_path, "gap", 0, 0.5)
    evaluation = {"split": "test", "which": "best", "flip": False, "top1": 0.5, "classes": ["cat", "dog"]}
    evaluation["confusion"] = [[0, 0, 1], [0, 1, 3], [1, 1, 4]]
    (tmp_path / "gap-0" / "evaluation.json").write_text(json.dumps({"evaluations": [evaluation]}))
    results = load_results(tmp_path)
    with mpl.rc_context({"axes.facecolor": "#000000"}):
        (axes,) = confusion_figure(results).axes
    np.testing.assert_allclose(axes.images[0].get_array(), [[25, 75], [0, 100]])
    assert mpl.colors.to_hex(axes.images[0].get_cmap()(0.0)) == "#000000"
    assert {text.get_text() for text in axes.texts} == {"25", "75", "100"}
    assert confused_pairs(evaluation) == [("cat", "dog", 3)]
    assert "cat predicted as dog (3)" in confusion_caption(results)
