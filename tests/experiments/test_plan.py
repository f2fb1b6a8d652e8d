"""What would run: limits, shards, finished runs, estimated times."""

import pytest

from isice.config import to_dict
from isice.experiments.loader import load_experiment
from isice.experiments.plan import plan, select_cells, summary


@pytest.fixture(scope="module")
def table3():
    return load_experiment("table3")


def record(cell, seconds, status="finished"):
    epochs = [{"epoch": epoch, "seconds": seconds} for epoch in (1, 2)]
    config = to_dict(cell.config)
    return {"status": status, "hash": cell.hash, "config": config, "epochs": epochs, "folder": "runs/x", "started": ""}


def test_limits_by_name_label_and_beginning(table3):
    for words in ("dataset=cub200", "dataset=Birds", "dataset=cub", " dataset = CUB "):
        cells = select_cells(table3, [words])
        assert len(cells) == 16
        assert {cell.at["dataset"] for cell in cells} == {"cub200"}
    assert len(select_cells(table3, ["dataset=cub,cars", "method=isice", "size=256"])) == 4


def test_limits_of_a_plain_grid():
    assert [cell.label for cell in select_cells(load_experiment("digits"), ["pooling=gap,isice"])] == ["gap", "isice"]


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("dataset=cubb", "expected dataset to be one of .*Did you mean 'cub200'"),
        ("dataset=c", "expected dataset to be one of"),
        ("datset=cub", r"an axis of method \(.*\); size \(128, 256, 512\); .*Did you mean 'dataset'"),
        ("head=gap", r"method \(isqrt_cov, precision, sice, isice\)"),
        ("head=isice", "Did you mean method=isice"),
        ("dataset", "expected --limit axis=value.* Did you mean 'dataset'"),
        ("cub200,cars", "Did you mean dataset=cub200,cars"),
    ],
)
def test_wrong_limits(table3, limit, message):
    with pytest.raises(ValueError, match=message):
        select_cells(table3, [limit])


def test_shards_are_a_partition(table3):
    whole = [cell.name for cell in select_cells(table3)]
    parts = [[cell.name for cell in select_cells(table3, shard=f"{i}/5")] for i in range(5)]
    assert sorted(name for part in parts for name in part) == sorted(whole)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert [cell.name for cell in select_cells(table3, only=7)] == [whole[7]]


@pytest.mark.parametrize("shard", ["5/5", "1", "a/b", "-1/3", "0/0"])
def test_wrong_shards(table3, shard):
    with pytest.raises(ValueError, match="expected --shard i/n"):
        select_cells(table3, shard=shard)


def test_a_cell_that_is_not_there(table3):
    with pytest.raises(ValueError, match="expected --only-cell from 0 to 63, got 64"):
        select_cells(table3, only=64)


def test_times_come_from_runs_with_the_same_head_else_from_any(table3):
    cells = {tuple(cell.at.values()): cell for cell in table3.cells()}
    isice, isqrt = cells["isice", "256", "cub200", "vgg16"], cells["isqrt_cov", "256", "cub200", "vgg16"]
    precision, cars = cells["precision", "256", "cub200", "vgg16"], cells["isice", "256", "cars", "vgg16"]
    failed = record(precision, 1e9, status="failed")
    steps = plan([isice, isqrt, precision, cars], [record(isice, 10.0), record(isqrt, 4.0), failed])
    assert [step.seconds for step in steps] == [500.0, 200.0, 350.0, None]
    assert [step.finished is not None for step in steps] == [True, True, False, False]
    assert summary(steps) == "2 to run, 2 finished; about 5.8 min on one device for 1 of them, " + (
        "unknown for the others"
    )
    again = plan([isice], [record(isice, 10.0)], force=True)
    assert again[0].finished is None


def test_without_records_the_time_is_unknown(table3):
    assert summary(plan(table3.cells(), [])) == ("64 to run, 0 finished; time unknown: no record of a similar run")
