"""``isice train`` and ``isice run``: what they write, skip and resume."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from isice import cli

from ..train._birds import make_pictures
from ._invoke import QUICK, invoke, main

pytestmark = pytest.mark.usefixtures("half_digits")


def test_failed_cell_is_recorded_and_status_is_one(tmp_path):
    file = tmp_path / "two.toml"
    file.write_text('[experiment]\nrecipe = "small"\n[grid]\nmodel.pooling = ["isice(n_itr=1)", "gap"]\n')
    result = CliRunner().invoke(cli.app, ["run", str(file), "--out", str(tmp_path / "runs"), *QUICK])
    assert result.exit_code == 1
    assert "Did you mean 'n_iter'?" in result.output
    records = [json.loads(path.read_text(encoding="utf-8")) for path in (tmp_path / "runs").glob("*/record.json")]
    assert sorted(record["status"] for record in records) == ["failed", "finished"]


def test_train_one_and_report_it(tmp_path):
    text = invoke("train", "--pooling", "covariance", "--out", str(tmp_path), *QUICK)
    assert "covariance" in text
    assert f"isice report {tmp_path} adds heat maps" in " ".join(text.split())
    record = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    assert record["config"]["model"] == {**record["config"]["model"], "pooling": "covariance", "reduce": 4}
    (tmp_path / "report.md").unlink()
    assert "covariance" in invoke("report", str(tmp_path))
    assert (tmp_path / "report.md").is_file()
    again = " ".join(invoke("train", "--pooling", "covariance", "--out", str(tmp_path), *QUICK).split())
    assert "is already finished" in again
    assert "heat maps" not in again, "has them now"


def test_train_takes_other_settings_from_the_recipe(tmp_path):
    recipe = tmp_path / "mine.toml"
    recipe.write_text('[model]\npooling = "covariance"\n[data]\nname = "digits"\nbatch_size = 512\n', encoding="utf-8")
    invoke("train", "--recipe", str(recipe), "--out", str(tmp_path / "run"), *QUICK)
    config = json.loads((tmp_path / "run" / "record.json").read_text(encoding="utf-8"))["config"]
    assert (config["model"]["pooling"], config["model"]["backbone"]) == ("covariance", "small_cnn")
    assert (config["data"]["batch_size"], config["model"]["reduce"]) == (512, 4)


def test_resume(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(cli.training, "show_report", lambda folder: None)  # takes longer than the training
    arguments = ["--pooling", "gap", "--set", "data.batch_size=512", "--out", str(tmp_path / "run"), *QUICK]
    status, _, err = main(monkeypatch, capsys, "train", "--resume", *arguments)
    assert status == 2
    assert "expected a run to resume" in err
    invoke("train", *arguments)
    before = (tmp_path / "run" / "record.json").read_bytes()
    invoke("train", "--resume", "--out", str(tmp_path / "run"))  # the settings are the run's own
    assert (tmp_path / "run" / "record.json").read_bytes() == before
    status, _, err = main(monkeypatch, capsys, "train", *arguments, "--set", "optim.lr=0.5")
    assert status == 2
    assert "optim.lr" in err
    invoke("train", "--no-resume", *arguments, "--set", "optim.lr=0.5")
    assert (tmp_path / "run" / "record.json").read_bytes() != before


def test_every_command_of_the_guide_runs(tmp_path, monkeypatch):
    """Blocks marked sh and python in docs/training.md, in order, in a folder with pictures."""
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(make_pictures(tmp_path / "birds") / "val")
    guide = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```", guide, flags=re.DOTALL | re.MULTILINE)
    assert {kind for kind, _ in blocks} == {"sh", "python"}
    for kind, block in blocks:
        if kind == "python":
            exec(block, {})
            continue
        for line in block.replace("\\\n", "").splitlines():
            program, *arguments = shlex.split(line)
            assert program == "isice"
            invoke(*arguments)
    assert json.loads((tmp_path / "runs/birds/record.json").read_text(encoding="utf-8"))["status"] == "finished"
