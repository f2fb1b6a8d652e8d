"""Paired comparison on shared test images: the test, Holm's correction, table and figure."""

import json
from math import comb

import numpy as np
import pytest

from isice.report.panel_plots import panels_caption, panels_figure
from isice.report.report_page import write_report
from isice.report.results import load_results
from isice.report.significance import TEST_NOTE, compare_with_best, holm, permutation_test
from isice.report.tables import result_table

TARGETS = [number % 2 for number in range(50)]


def evaluate(folder, wrong):
    predicted = [1 - target if index in wrong else target for index, target in enumerate(TARGETS)]
    evaluation = {"split": "test", "which": "best", "flip": False, "top1": 1 - len(wrong) / 50, "classes": ["a", "b"]}
    evaluation |= {"confusion": [], "data": {"name": "digits"}, "targets": TARGETS, "predicted": predicted}
    (folder / "evaluation.json").write_text(json.dumps({"evaluations": [evaluation]}))


@pytest.mark.parametrize(("plus", "minus"), [(9, 1), (6, 4), (12, 5)])
def test_with_one_run_the_test_is_mcnemars(plus, minus):
    """Signs of ±1 differences are binomial, so the exact p-value is that of McNemar's test."""
    n, k = plus + minus, max(plus, minus)
    exact = min(1.0, 2 * sum(comb(n, i) for i in range(k, n + 1)) / 2**n)
    differences = np.array([1.0] * plus + [-1.0] * minus + [0.0] * 30)
    assert permutation_test(differences) == pytest.approx(exact, abs=0.015)


def test_holm_is_monotone_and_bounded():
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    np.testing.assert_allclose(holm([0.001, 0.02, 0.03]), [0.003, 0.04, 0.04])


def test_the_table_says_what_is_significant(tmp_path, write_run):
    for pooling, wrong in {"gap": range(25), "covariance": range(3), "isice": range(2)}.items():
        write_run(tmp_path, pooling, 0, 1 - len(wrong) / 50)
        evaluate(tmp_path / f"{pooling}-0", wrong)
    results = load_results(tmp_path)
    table = result_table(results)
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert rows["isice"]["against the best"] == "best"
    assert rows["gap"]["against the best"] == "lower, p < 0.001"
    assert rows["covariance"]["against the best"] == "n.s., p = 1"
    assert rows["gap"]["95 % interval"] == "36.6 – 63.4"
    write_report(tmp_path)
    assert TEST_NOTE in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_other_test_images_are_not_compared(tmp_path, write_run):
    for pooling in ("gap", "isice"):
        write_run(tmp_path, pooling, 0, 0.9)
        evaluate(tmp_path / f"{pooling}-0", range(5))
    path = tmp_path / "gap-0" / "evaluation.json"
    path.write_text(path.read_text().replace('"digits"', '"textures"'))
    assert compare_with_best(load_results(tmp_path).groups) == [None, None]


def test_panels_show_every_task_and_the_caption_what_was_measured(tmp_path, demo_records):
    results = demo_records(tmp_path)
    figure = panels_figure(results)
    assert [axes.get_title() for axes in figure.axes] == ["pairs", "hidden pairs", "digits"]
    assert "average pooling" in [label.get_text() for label in figure.axes[0].get_yticklabels()]
    shown = [line.get_xdata()[0] for line in figure.axes[0].lines if line.get_marker() == "o"]
    np.testing.assert_allclose(shown, [50, 90, 90, 90, 90])
    assert "significantly lower: average pooling 50.0 %" in panels_caption(results)
    paths = write_report(tmp_path, results.manifest)
    page = paths["markdown"].read_text(encoding="utf-8")
    assert page.index("panels.png") < page.index("| task |")


@pytest.fixture
def demo_records():
    """Writes the runs of the demo, in which average pooling is wrong half of the time."""
    from isice.config import to_dict
    from isice.experiments.loader import load_experiment
    from isice.experiments.manifest import describe

    def write(folder):
        experiment = load_experiment("demo")
        for cell in experiment.cells():
            wrong = range(25 if cell.at["pooling"] == "gap" else 5)
            record = {"status": "finished", "hash": cell.hash, "config": to_dict(cell.config), "started": "2026"}
            record |= {"seed": 0, "accuracy": {"test": 1 - len(wrong) / 50}, "images": {"test": 50}, "epochs": []}
            record |= {"parameters": {"total": 1}, "commit": None, "hardware": {}, "versions": {}}
            (folder / cell.name).mkdir(parents=True)
            (folder / cell.name / "record.json").write_text(json.dumps(record))
            evaluate(folder / cell.name, wrong)
        return load_results(folder, describe(experiment))

    return write
