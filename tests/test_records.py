"""The record: written, read back, validated; records of earlier versions are still read."""

import json
from pathlib import Path

import pytest

from isice.config import RunConfig, config_hash
from isice.experiments.job_configs import families_of_record, finished_folders
from isice.records import (
    evaluation_on_test,
    failure,
    find_records,
    new_record,
    read_record,
    write_record,
)

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"


def test_written_and_read_back(tmp_path):
    record = new_record(RunConfig(seed=3), {"cpu": "µ"})
    assert (record["schema"], record["status"], record["seed"]) == (1, "started", 3)
    assert record["hash"] == config_hash(RunConfig(seed=3))
    assert write_record(tmp_path / "a", record) == tmp_path / "a" / "record.json"
    assert read_record(tmp_path / "a") == record
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["record.json"]
    assert read_record(tmp_path) is None


def test_a_failure_has_its_traceback():
    try:
        raise ValueError("it broke")
    except ValueError as error:
        fields = failure(error)
    assert (fields["status"], fields["error"]) == ("failed", "ValueError: it broke")
    assert "test_a_failure_has_its_traceback" in fields["traceback"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "invalid JSON"),
        ('{"status": "finished", "hash": "x"}', "without started"),
        (
            '{"schema": 2, "status": "finished", "hash": "x", "started": "2026"}',
            "schema 1 or older .* update isice",
        ),
    ],
)
def test_invalid_records(tmp_path, text, message):
    (tmp_path / "record.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_record(tmp_path)


def test_records_are_found_by_start_time(tmp_path):
    for name, started in (("a", "2026-02"), ("b/c", "2026-01")):
        (tmp_path / name).mkdir(parents=True)
        record = {"status": "finished", "hash": name, "started": started}
        (tmp_path / name / "record.json").write_text(json.dumps(record))
    assert [record["folder"] for record in find_records(tmp_path)] == [str(tmp_path / "b/c"), str(tmp_path / "a")]
    assert finished_folders(find_records(tmp_path)) == {"a": tmp_path / "a", "b/c": tmp_path / "b/c"}


@pytest.mark.parametrize(("folder", "count"), [("bench_h200/layers", 54), ("cub200_vgg16_224", 4)])
def test_stored_records_are_read(folder, count):
    found = find_records(RESULTS / folder)
    assert len(found) == count
    assert all(families_of_record(record) for record in found)


def test_a_run_of_a_sweep_spends_at_most_15_seconds_outside_its_epochs():
    outside = [r["seconds_outside_epochs"] for r in find_records(RESULTS) if "seconds_outside_epochs" in r]
    later = [sum(phases.values()) for phases in outside if phases["process"] == 0]
    assert len(later) >= 7
    assert max(later) <= 15


def test_the_evaluation_of_a_stored_run():
    record = next(record for record in find_records(RESULTS / "cub200_vgg16_224") if "isice" in record["folder"])
    evaluation = evaluation_on_test(record)
    assert evaluation["top1"] == pytest.approx(record["accuracy"]["test"], abs=0.01)  # bf16 and float32
    assert evaluation_on_test(record | {"folder": str(RESULTS)}) is None
