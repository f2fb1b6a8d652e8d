"""Published numbers, metrics and aggregates of a user's own file, and the mistakes in it."""

import json

import pytest

from isice.experiments.loader import load_experiment
from isice.experiments.manifest import describe, read_manifest, write_manifest

FILE = """
[experiment]
recipe = "small"
expand = "rows"
[axes.data]
a = {{ label = "A", data.partition = 1 }}
b = {{ label = "B", repeat.data.partition = [2, 3], data.split_seed = 1 }}
[axes.head]
gap = {{ model.pooling = "gap" }}
isice = {{ model.pooling = "isice" }}
precision = {{ model.pooling = "precision" }}
[[aggregates]]
axis = "data"
name = "average"
[printed]
source = "Here"
rows = ["head"]
columns = ["data"]
table = '''
        {columns}
gap     {gap}
isice   1    2     —
'''
[[printed.notes]]
at = {{ head = "{noted}" }}
text = "a note"
"""


def load(tmp_path, columns="a b average", gap="90 80.5 85", noted="gap"):
    path = tmp_path / "mine.toml"
    path.write_text(FILE.format(columns=columns, gap=gap, noted=noted))
    return load_experiment(path)


def test_a_table_of_ones_own(tmp_path):
    experiment = load(tmp_path)
    assert dict(experiment.published.numbers) == {
        ("gap", "a"): "90", ("gap", "b"): "80.5", ("gap", "average"): "85", ("isice", "a"): "1", ("isice", "b"): "2",
    }  # fmt: skip
    assert experiment.aggregates[0].of == ("a", "b")
    # Only published rows are run, and b is repeated over two splits.
    assert [cell.label for cell in experiment.cells()] == [
        "a gap", "a isice", "b gap split 2 seed 0", "b gap split 3 seed 0", "b isice split 2 seed 0",
        "b isice split 3 seed 0",
    ]  # fmt: skip


def test_an_override_of_what_is_repeated(tmp_path):
    experiment = load(tmp_path).with_settings(["data.partition=4"])
    assert [cell.config.data.partition for cell in experiment.cells()] == [4] * 4


def test_overrides_that_make_runs_equal_are_an_error(tmp_path):
    experiment = load(tmp_path).with_settings(["data.partition=4", "data.split_seed=4"])
    assert len(experiment.cells()) == 2  # the axis has nothing left to vary
    path = tmp_path / "same.toml"
    path.write_text('[axes.x]\na = { model.pooling = "gap" }\nb = { model.pooling = "gap" }\n')
    with pytest.raises(ValueError, match="got 'a' and 'b', which are the same"):
        load_experiment(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gap": "90 80"}, "expected 3 numbers in the published row 'gap', got 2"),
        ({"gap": "90 80 x"}, "expected a number or — in the published row 'gap', got 'x'"),
        ({"columns": "a c average"}, "expected 'data' in .printed. to be one of 'a', 'average', 'b', got 'c'"),
        ({"noted": "gup"}, "expected 'head' in .printed. to be one of .*Did you mean 'gap'"),
    ],
)
def test_mistakes_in_a_table(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        load(tmp_path, **change)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[metrics]\na = { label = 'x' }", "expected metrics.a to have a 'key'"),
        ("[metrics]\na = { keyy = 'x' }", "expected metrics.a to have fields of Metric"),
        ("[axes.metric]\na = { seed = 1 }", "another name than 'metric'"),
        ("[axes]\nx = ['gap']", "expected axes.x to be a table of values"),
        ("[axes.x]\na = { seed = 1 }", "expected seeds under"),
        ("[plot]\ny = 'a'", "plot.y: unknown key"),
        ("[experiment]\nkind = 'bnch'", "Did you mean 'bench'"),
        ("[experiment]\nkind = 'bench'\nrecipe = 'small'", "expected no recipe for the kind 'bench'"),
        ("[experiment]\nkind = 'bench'\n[grid]\npoling = ['gap']", "unknown key 'poling'"),
        ("[[exceptions]]\nat = { x = 'y' }\nconfig = { seed = 2 }", "exceptions.at.x"),
        ("[[exceptions]]\nconfig = { seed = 2 }", r"every entry of \[\[exceptions\]\] to have a table 'at'"),
        ("[[exceptions]]\nat = {}", "to have a table 'config'"),
    ],
)
def test_mistakes_in_the_new_tables(tmp_path, text, message):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises((ValueError, TypeError), match=message):
        load_experiment(path)


@pytest.mark.parametrize("name", ["table1", "table5", "figure3", "digits"])
def test_a_manifest_is_read_back_as_it_was(tmp_path, name):
    experiment = load_experiment(name)
    if experiment.kind == "train":
        experiment = experiment.with_settings(["optim.epochs=2", "data.root=somewhere", "device=cpu"])
    manifest = describe(experiment, "..")
    write_manifest(manifest, tmp_path)
    assert read_manifest(tmp_path) == manifest
    keys = json.loads((tmp_path / "experiment.json").read_text(encoding="utf-8")).keys()
    assert keys >= {"printed", "pool"}
    assert not keys & {"published", "runs_root"}
    assert manifest.changed == (("optim.epochs=2",) if experiment.kind == "train" else ())


def test_no_manifest(tmp_path):
    assert read_manifest(tmp_path) is None
    (tmp_path / "experiment.json").write_text('{"title": "of an older version"}')
    assert read_manifest(tmp_path) is None
