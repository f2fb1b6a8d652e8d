"""Rows from records: means over seeds, failures and gaps."""

import io
import json
import shutil

import pytest
from rich.console import Console

from isice.config import config_hash, to_dict
from isice.experiments.job_configs import identities
from isice.experiments.manifest import Entry, Manifest, write_manifest
from isice.report.results import load_results
from isice.report.tables import result_table


def test_one_row_per_configuration(runs):
    table = result_table(load_results(runs))
    assert table.columns[0] == "head"
    assert table.rows == [
        ("gap", "60.0 ± 14.1", "50.0 ± 14.1", "2", "6.0 ± 0.0", "12,345"),
        ("isice", "90.0", "80.0", "1 of 2", "6.0", "12,345"),
    ]


@pytest.mark.parametrize("started", [None, "1999-01-01T00:00:00+00:00"])
def test_a_copied_or_repeated_run_is_not_another_seed(runs, started):
    before = result_table(load_results(runs)).rows
    path = shutil.copytree(runs / "gap-0", runs / "copy" / "gap-0") / "record.json"
    if started is not None:
        record = json.loads(path.read_text())
        path.write_text(json.dumps(record | {"started": started, "accuracy": {"test": 0.01}}))
    assert result_table(load_results(runs)).rows == before


def test_a_run_on_another_data_folder_is_not_a_repetition(runs):
    before = len(load_results(runs).records)
    path = shutil.copytree(runs / "gap-0", runs / "elsewhere" / "gap-0") / "record.json"
    record = json.loads(path.read_text())
    record["config"]["data"]["root"] = "elsewhere"
    path.write_text(json.dumps(record))
    assert len(load_results(runs).records) == before + 1


def test_failed_only_and_missing(tmp_path, write_run):
    failed = write_run(tmp_path, "isice", 0, 0.0, status="failed")
    missing = write_run(tmp_path / "elsewhere", "gap", 0, 0.5)
    for file in (tmp_path / "elsewhere").rglob("record.json"):
        file.unlink()
    cells = tuple(
        Entry("n", c.model.pooling, config_hash(c), identities(c)[1], {"head": c.model.pooling}, to_dict(c))
        for c in (missing, failed)
    )
    axes = {"head": {"gap": "gap", "isice": "isice"}}
    write_manifest(Manifest("t", "T", "", axes=axes, cells=cells), tmp_path)
    results = load_results(tmp_path)
    assert results.title == "T"
    assert result_table(results).rows == [
        ("gap", "—", "—", "0 of 1", "—", "—"),
        ("isice", "failed", "—", "0 of 1", "—", "—"),
    ]


def test_an_interrupted_run_has_not_failed(tmp_path, write_run):
    write_run(tmp_path, "gap", 0, 0.5, status="interrupted")
    write_run(tmp_path, "isice", 0, 0.0, status="failed")
    assert [row[1] for row in result_table(load_results(tmp_path)).rows] == ["unfinished", "failed"]


def test_columns_are_the_settings_that_vary(tmp_path, write_run):
    write_run(tmp_path, "gap", 0, 0.5)
    record = json.loads((tmp_path / "gap-0" / "record.json").read_text())
    record["config"]["optim"]["lr"] = 0.5
    record["hash"] = "other"
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "record.json").write_text(json.dumps(record))
    results = load_results(tmp_path)
    assert results.axes == ("optim.lr",)
    assert [group.label for group in results.groups] == ["0.00012", "0.5"]


def test_markdown_and_terminal(runs):
    table = result_table(load_results(runs))
    lines = table.to_markdown().splitlines()
    assert lines[1] == "| --- | ---: | ---: | ---: | ---: | ---: |"
    assert lines[2].startswith("| gap | 60.0 ± 14.1 |")
    stream = io.StringIO()
    Console(file=stream, width=80).print(table.to_rich())
    assert "…" not in stream.getvalue()
    assert "60.0 ± 14.1" in stream.getvalue()


def test_a_bar_in_a_spec_does_not_break_markdown(tmp_path, write_run):
    write_run(tmp_path, "gap", 0, 0.5)
    table = result_table(load_results(tmp_path))
    table.rows[0] = ("a|b", *table.rows[0][1:])
    assert r"a\|b" in table.to_markdown()


def test_folders_without_records(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load_results(tmp_path / "no")
    with pytest.raises(FileNotFoundError, match=r"record\.json files under"):
        load_results(tmp_path)
