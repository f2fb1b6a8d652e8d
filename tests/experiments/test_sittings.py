"""A table trained in several sittings on fresh machines; only small records are kept in between."""

import json
import shutil

import pytest

from isice.experiments.manifest import read_manifest

from ..cli._invoke import invoke

pytestmark = pytest.mark.usefixtures("half_digits")

FILE = (
    """
[experiment]
title = "A table"
seeds = [0]
[config]
data.val_fraction = 0.6
model.reduce = 4
optim.epochs = 3
optim.milestones = [1]
device = "cpu"
threads = 1
tensorboard = false
[axes.method]
gap = { label = "GAP", model.pooling = "gap" }
isqrt_cov = { label = "iSQRT-COV", model.pooling = "isqrt_cov" }
[axes.dataset]
digits = { data.name = "digits" }
textures = { data.name = "textures" }
[printed]
source = "Table 9"
rows = ["method"]
columns = ["dataset"]
table = """
    + "'''"
    + """
           digits  textures
gap        50.0    60.0
isqrt_cov  99.0    98.0
"""
    + "'''"
)


def keep_records(run, place):
    """Copy what a repository keeps of a sweep: no weights, images or arrays."""
    for path in run.rglob("*"):
        if path.name in ("record.json", "config.toml", "metrics.jsonl", "experiment.json"):
            (place / path.relative_to(run)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place / path.relative_to(run))
    return place


@pytest.fixture(scope="module")
def sittings(tmp_path_factory):
    """Two sittings of one cell each; return the records and the output of the second one."""
    folder = tmp_path_factory.mktemp("sittings")
    file = folder / "column.toml"
    file.write_text(FILE, encoding="utf-8")
    column = ["--limit", "dataset=digits", "--set", "optim.epochs=2"]
    invoke("run", file, *column, "--limit", "method=gap", "--out", folder / "first")
    second = keep_records(folder / "first", folder / "second")
    output = invoke("run", file, *column, "--set", "precision=bf16", "--out", second)
    return keep_records(second, folder / "records"), output


def test_finished_cells_are_skipped_by_their_record_alone(sittings):
    records, output = sittings
    assert "gap digits: skipped, finished" in output.replace("\n", " ")
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(records.glob("*/record.json"))]
    assert {record["config"]["model"]["pooling"]: record["config"]["precision"] for record in found} == {
        "gap": "fp32",
        "isqrt_cov": "bf16",
    }


def test_records_alone_give_the_table_beside_the_published_one(sittings):
    records, _ = sittings
    report = invoke("report", records)
    text = (records / "report.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith(("| GAP", "| iSQRT-COV"))]
    assert len([row for row in rows if "/" in row]) == 2
    assert "textures" not in rows[0]
    gap = json.loads(next(records.glob("gap*/record.json")).read_text(encoding="utf-8"))["accuracy"]["test"]
    assert f"50.0 / {100 * gap:.1f} / {100 * gap - 50:+.1f}".replace("-", "−") in text
    assert "Table 9" in report


def test_the_record_and_the_report_name_the_missing_epochs(sittings):
    records, output = sittings
    note = "2 of the recipe's 3 epochs; the rate is 1.2e-05 from epoch 2 to the end"
    for path in records.glob("*/record.json"):
        assert json.loads(path.read_text(encoding="utf-8"))["schedule"] == note
    assert "2 of the recipe" in output
    for name in ("report.md", "report.tex"):
        assert note in (records / name).read_text(encoding="utf-8").replace("\\", "")


def test_the_manifest_holds_the_cells_of_all_sittings_and_no_others(sittings):
    records, _ = sittings
    manifest = read_manifest(records)
    assert manifest.limits == {"dataset": ("digits",)}
    assert [cell.label for cell in manifest.cells] == ["gap digits", "isqrt_cov digits"]
