"""Paper, ours, difference: from a user's file and fabricated records."""

import io
import json

import pytest
from rich.console import Console

from isice.config import config_hash, to_dict
from isice.experiments.loader import load_experiment
from isice.experiments.manifest import describe, write_manifest
from isice.records import find_records
from isice.report import write_report
from isice.report.comparison import compare
from isice.report.measured_numbers import number_of

FILE = """
[experiment]
title = "Mine & yours_100%"
recipe = "small"
seeds = [0]
[axes.data]
a = { label = "A", data.partition = 1 }
b = { label = "B", repeat.data.partition = [2, 3] }
[axes.head]
gap = { label = "GAP", model.pooling = "gap" }
isice = { model.pooling = "isice" }
[[aggregates]]
axis = "data"
name = "average"
[printed]
source = "Table 1"
rows = ["head"]
columns = ["data"]
table = '''
        a     b     average
gap     70.5  60    65.2
isice   80    —     —
'''
[[printed.notes]]
at = { head = "gap", data = "a" }
text = "a note"
"""


@pytest.fixture
def experiment(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    return load_experiment(path)


def write(folder, config, accuracy, *, status="finished", name=None, evaluation=None):
    record = {"schema": 1, "status": status, "hash": config_hash(config), "config": to_dict(config)}
    record |= {"seed": config.seed, "started": "2026-01-01T00:00:00+00:00", "commit": "c", "versions": {}}
    record |= {"hardware": {"device": "cpu"}, "accuracy": {"test": accuracy}, "images": {"train": 10, "test": 10}}
    record |= {"epochs": [{"epoch": 1, "train_loss": 1.0, "train_accuracy": 0.5, "seconds": 1.0}]}
    record |= {"parameters": {"total": 5}, "error": "E: boom"} if status == "failed" else {"parameters": {"total": 5}}
    path = folder / (name or record["hash"])
    path.mkdir(parents=True)
    (path / "record.json").write_text(json.dumps(record))
    if evaluation is not None:
        (path / "evaluation.json").write_text(json.dumps({"schema": 1, "evaluations": evaluation}))


def configs(experiment, seeds=(0,)):
    cells = experiment.with_settings(seeds=list(seeds)).cells()
    return {(c.at["head"], c.at["data"], c.config.data.partition, c.config.seed): c.config for c in cells}


def texts(experiment, folder, **limits):
    (table,) = compare(describe(experiment), find_records(folder), limits or None)
    return table, [row[table.to_table().n_text :] for row in table.to_table().rows]


def test_without_records_there_are_dashes(experiment, tmp_path):
    table, rows = texts(experiment, tmp_path)
    assert rows == [("70.5ᵃ / — / —", "60 / — / —", "65.2 / — / —"), ("80 / — / —", "—", "—")]
    assert table.counts == (0, 4)
    assert table.notes == ["ᵃ a note"]
    assert table.columns == ("A", "B", "average")
    assert [labels for labels, _ in table.rows] == [("GAP",), ("isice",)]


def test_mean_deviation_runs_and_difference(experiment, tmp_path):
    runs = configs(experiment, (0, 1, 2))
    for seed, accuracy in enumerate((0.70, 0.72, 0.74)):  # seeds that the file does not name count too
        write(tmp_path, runs["gap", "a", 1, seed], accuracy)
    for split, accuracy in ((2, 0.58), (3, 0.60)):  # splits are runs of one result
        write(tmp_path, runs["gap", "b", split, 0], accuracy)
    write(tmp_path, runs["isice", "a", 1, 0], 0.85)
    _, rows = texts(experiment, tmp_path)
    assert rows[0] == ("70.5ᵃ / 72.0 ± 2.0 (3) / +1.5", "60 / 59.0 ± 1.4 (2) / −1.0", "65.2 / 65.5 / +0.3")
    assert rows[1] == ("80 / 85.0 / +5.0", "—", "—")


def test_failures_and_strangers(experiment, tmp_path):
    runs = configs(experiment)
    write(tmp_path, runs["gap", "a", 1, 0], 0.0, status="failed")
    write(tmp_path, experiment.with_settings(["optim.lr=0.5"]).cells()[0].config, 0.99, name="other")
    (tmp_path / "old").mkdir()
    old = {"status": "finished", "hash": "x", "config": {"optim": {"gone": 1}}, "started": "2020"}
    (tmp_path / "old" / "record.json").write_text(json.dumps(old))
    table, rows = texts(experiment, tmp_path)
    assert rows[0][0] == "70.5ᵃ / failed / —"
    assert table.counts[0] == 0


def test_limits(experiment, tmp_path):
    table, rows = texts(experiment, tmp_path, data={"a"}, head={"isice"})
    assert table.columns == ("A",)
    assert rows == [("80 / — / —",)]


def test_good_and_bad(experiment, tmp_path):
    runs = configs(experiment)
    write(tmp_path, runs["gap", "a", 1, 0], 0.60)
    write(tmp_path, runs["isice", "a", 1, 0], 0.90)
    table, _ = texts(experiment, tmp_path)
    assert [items[0].better for _, items in table.rows] == [False, True]
    assert table.rows[0][1][1].better is None


def test_an_axis_that_was_set_away_is_not_compared(experiment, tmp_path):
    fixed = experiment.with_settings(["model.pooling=covariance"])
    write(tmp_path, fixed.cells()[0].config, 0.9)
    (table,) = compare(describe(fixed), find_records(tmp_path))
    assert not table.published
    assert [row[1:] for row in table.to_table().rows] == [("90.0",), ("—",)]


def test_ratios_follow_from_published_and_from_measured_numbers(tmp_path):
    experiment = load_experiment("table5")
    for cell, seconds in zip(experiment.cells(), (0.1, 0.12, 0.2, 1.0, 0.15, 0.15), strict=True):
        record = {"status": "finished", "kind": "bench", "hash": cell.hash, "config": to_dict(cell.config)}
        record |= {"started": "2026", "batch_seconds": seconds, "epoch_minutes": 10 * seconds, "peak_gib": None}
        (tmp_path / cell.name).mkdir()
        (tmp_path / cell.name / "record.json").write_text(json.dumps(record))
    (table,) = compare(describe(experiment), find_records(tmp_path))
    assert table.columns == ("time/batch (s)", "time/epoch (min)", "batch ÷ GAP", "epoch ÷ GAP")  # no memory on a CPU
    rows = {row[0]: row[1:] for row in table.to_table().rows}
    assert rows["iSICE"][2] == "1.54 / 1.50 / −0.04"  # 44.6 / 29.0 and 0.15 / 0.1
    assert rows["GAP"][2] == "1.00 / 1.00 / +0.00"


def test_top5_comes_from_the_evaluation_of_the_reported_epoch(experiment, tmp_path):
    def entry(top5, **changes):
        return {"split": "test", "which": "best", "flip": False, "top5": top5, **changes}

    evaluation = [entry(0.9), entry(0.1, flip=True), entry(0.2, split="train"), entry(0.3, which="last")]
    write(tmp_path, experiment.cells()[0].config, 0.5, evaluation=evaluation)
    write(tmp_path, experiment.cells()[1].config, 0.5)
    first, second = sorted(find_records(tmp_path), key=lambda record: record["hash"] != experiment.cells()[0].hash)
    assert number_of(first, "evaluation.top5") == 0.9
    assert number_of(second, "evaluation.top5") is None
    assert number_of(first, "accuracy.test") == 0.5
    assert number_of(first, "accuracy.none.deeper") is None


def test_wide_tables_are_cut_for_the_terminal(experiment, tmp_path):
    table, _ = texts(experiment, tmp_path)
    parts = table.split_columns(40)
    assert len(parts) > 1
    assert sum((part.columns for part in parts), ()) == table.columns
    for part in parts:
        stream = io.StringIO()
        Console(file=stream, width=40).print(part.to_table().to_rich())
        assert "…" not in stream.getvalue()
        assert len(stream.getvalue().strip().splitlines()) == 4  # a head, a rule and two rows: no wrapping
    assert [part.columns for part in table.split_columns(300)] == [table.columns]


def test_the_files_of_a_report(experiment, tmp_path):
    write(tmp_path / "runs", configs(experiment)["gap", "a", 1, 0], 0.72)
    write_manifest(describe(experiment.with_settings(["device=cpu"]), ".."), tmp_path / "runs" / "mine")
    paths = write_report(tmp_path / "runs" / "mine")
    markdown, latex, html = (paths[kind].read_text(encoding="utf-8") for kind in ("markdown", "latex", "html"))
    assert "| GAP | 70.5ᵃ / 72.0 / +1.5 | 60 / — / — | 65.2 / — / — |" in markdown
    assert "ᵃ a note" in markdown
    assert r"GAP & 70.5\textsuperscript{a} / 72.0 / +1.5 & 60 / --- / --- & 65.2 / --- / --- \\" in latex
    assert r"Mine \& yours\_100\%" in latex
    for part in ('title="paper">70.5ᵃ<', 'title="ours">72.0<', 'title="difference">+1.5<', "ᵃ a note"):
        assert part in html
    assert "Mine &amp; yours_100%" in html
    assert "Settings changed" not in html
    changed = experiment.with_settings(["optim.lr=0.5"])
    write_report(tmp_path / "runs" / "mine", describe(changed, ".."))
    text = paths["markdown"].read_text(encoding="utf-8")
    assert "Settings changed from the file: optim.lr=0.5." in text
    assert "| GAP | 70.5ᵃ / — / — |" in text


def test_a_report_of_the_paper_without_any_run(tmp_path):
    paths = write_report(tmp_path / "table7", describe(load_experiment("table7"), ".."))
    text = paths["markdown"].read_text(encoding="utf-8")
    assert "| MIT | VGG-16 | 76.12 / — / — |" in text
    assert text.count("/ — / —") == 88
