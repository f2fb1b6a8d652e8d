"""Damaged files of a run: named in a message; the report of its neighbours is written."""

import json
from pathlib import Path

import pytest

from isice.experiments.manifest import read_manifest
from isice.records import EVALUATION_FILE, evaluation_on_test, find_records, read_evaluations, read_record
from isice.report import write_report
from isice.report.explain_page import find_heat_maps

DAMAGED = {
    "empty": "",
    "braces": "{}",
    "list": "[]",
    "null": "null",
    "cut": '{"status": "finished", "hash"',
    "deep": "[" * 100_000,
    "status only": '{"status": "finished"}',
}


@pytest.fixture
def runs(tmp_path: Path, write_run) -> Path:
    for pooling in ("gap", "isice"):
        write_run(tmp_path, pooling, 0, 0.5)
    return tmp_path


def change(path: Path, **fields) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_record_is_named_and_left_out(runs: Path, case: str):
    path = runs / "isice-0" / "record.json"
    path.write_text(DAMAGED[case])
    with pytest.raises(ValueError, match=r"records: expected a record in '.*isice-0/record\.json'"):
        read_record(path.parent)
    with pytest.warns(UserWarning, match=r"isice-0/record\.json.*It is left out"):
        assert [record["config"]["model"]["pooling"] for record in find_records(runs)] == ["gap"]


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "done"},
        {"config": None},
        {"accuracy": {"test": None}},
        {"accuracy": {"test": float("nan")}},
        {"epochs": [{}]},
        {"epochs": {"a": 1}},
        {"images": {"test": "many"}},
        {"schema": "one"},
        {"started": 3},
        {"hardware": []},
    ],
)
def test_damaged_field_is_named(runs: Path, fields: dict):
    change(runs / "isice-0" / "record.json", **fields)
    name = next(iter(fields))
    with pytest.raises(ValueError, match=f"isice-0/record.json', got other values of .*{name}.*the file is damaged"):
        read_record(runs / "isice-0")


@pytest.mark.filterwarnings("ignore:records:UserWarning")
@pytest.mark.parametrize("missing", ["everything", "config", "accuracy", "epochs", "seed", "versions"])
def test_report_of_the_neighbours(runs: Path, missing: str):
    path = runs / "isice-0" / "record.json"
    fields = {} if missing == "everything" else json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in fields.items() if name != missing}))
    (runs / "gap-0" / EVALUATION_FILE).write_text('{"evaluations": [{}]}')
    (runs / "gap-0" / "arrays.npz").write_bytes(b"")
    with pytest.warns(UserWarning, match="It is left out"):
        paths = write_report(runs)
    assert "| gap | 50.0 |" in paths["markdown"].read_text(encoding="utf-8")


@pytest.mark.parametrize("content", ['{"evaluations": [{}]}', "[{}]", "[]", "", '{"evaluations": [3]}'])
def test_damaged_evaluation(runs: Path, content: str):
    folder = runs / "gap-0"
    (folder / EVALUATION_FILE).write_text(content)
    with pytest.raises(ValueError, match=r"eval: expected evaluations in '.*evaluation\.json'"):
        read_evaluations(folder)
    with pytest.warns(UserWarning, match=r"evaluation\.json"):
        assert evaluation_on_test({"folder": str(folder)}) is None


@pytest.mark.parametrize("content", [b"", b"PK", b"not an archive"])
def test_damaged_arrays(runs: Path, content: bytes):
    from isice.report.descriptor_plots import descriptors_figure
    from isice.report.results import load_results

    (runs / "gap-0" / "arrays.npz").write_bytes(content)
    with pytest.warns(UserWarning, match=r"gap-0/arrays\.npz"):
        assert descriptors_figure(load_results(runs)) is not None  # of the other run


@pytest.mark.parametrize("content", ["", "[]", "{", "3"])
def test_damaged_description_of_an_experiment(tmp_path: Path, content: str):
    (tmp_path / "experiment.json").write_text(content)
    with pytest.raises(ValueError, match=r"experiment: expected the description .*experiment\.json"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("content", [None, "", "[]", '{"01-maps.png": 3}'])
def test_damaged_captions(tmp_path: Path, content: str | None):
    (tmp_path / "explain").mkdir()
    if content is not None:
        (tmp_path / "explain" / "captions.json").write_text(content)
    (tmp_path / "explain" / "01-maps.png").write_bytes(b"png")
    assert find_heat_maps(tmp_path)[0].caption.startswith("Top:")
