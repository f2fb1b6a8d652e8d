"""``isice eval``, ``predict`` and ``push``: a trained network in use."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from isice import cli

from ..train._birds import CLASSES
from ._invoke import invoke, main


def test_eval_prints_and_writes(birds):
    text = invoke("eval", str(birds / "run"))
    for part in ("test, 20 images", "top-1 accuracy", "calibration error", *CLASSES, "evaluation.json"):
        assert part in text
    entry = json.loads(invoke("eval", str(birds / "run"), "--split", "val", "--flip", "--which", "last", "--json"))
    assert (entry["split"], entry["flip"], entry["which"], entry["images"]) == ("val", True, "last", 10)
    stored = json.loads((birds / "run" / "evaluation.json").read_text(encoding="utf-8"))["evaluations"]
    assert stored[-1] == entry


def test_predict_table_and_json(birds):
    text = invoke("predict", str(birds / "run"), str(birds / "pictures/test/robin"), "--topk", "2")
    assert len(re.findall(r"robin/\d\.png\s+robin \d", text)) == 4
    found = json.loads(invoke("predict", str(birds / "run"), f"{birds}/pictures/test/*/0.png", "--json", "--topk", "1"))
    assert [one["predictions"][0]["class"] for one in found] == list(CLASSES)


def test_predict_names_bad_images_does_the_others_and_exits_with_one(monkeypatch, capsys, birds):
    arguments = ["predict", str(birds / "run"), str(birds / "bad.png"), f"{birds}/pictures/test/wren/0.png", "no.png"]
    status, out, err = main(monkeypatch, capsys, *arguments)
    assert status == 1
    assert "wren" in out
    assert "error" not in out  # once is enough
    assert err.splitlines() == [
        f"error: {birds / 'bad.png'}: it cannot be read as an image",
        "error: no.png: there is no such file",
    ]
    status, out, err = main(monkeypatch, capsys, *arguments, "--json")
    assert (status, err) == (1, "")
    assert [one.get("error") for one in json.loads(out)] == [
        "it cannot be read as an image",
        None,
        "there is no such file",
    ]


def test_push_to_a_folder_and_use_it(birds, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "wrote shared" in invoke("push", str(birds / "run"), "./shared")
    card = Path("shared/README.md").read_text(encoding="utf-8")
    record = json.loads((birds / "run" / "record.json").read_text(encoding="utf-8"))
    assert f"| top-1 accuracy, test | {record['accuracy']['test']:.2%} |" in card
    assert record["commit"] is None or record["commit"] in card
    assert str(birds) not in Path("shared/config.json").read_text(encoding="utf-8")
    picture = f"{birds}/pictures/test/heron/1.png"
    assert "heron" in invoke("predict", "local-dir:shared", picture)
    # The record's accuracy is that of the best epoch; the card of other weights must not claim it.
    invoke("push", str(birds / "run"), "./shared", "--which", "last")
    card = Path("shared/README.md").read_text(encoding="utf-8")
    assert "No accuracy is recorded for these weights." in card
    assert "| top-1 accuracy" not in card


def test_push_to_the_hub_fails_clearly(monkeypatch, capsys, birds):
    def refuse(*_, **__):
        raise ConnectionError("no network")

    monkeypatch.setattr("isice.models.Network.push_to_hub", refuse)
    status, _, err = main(monkeypatch, capsys, "push", str(birds / "run"), "owner/birds")
    assert status == 2
    assert "the Hub refused or could not be reached (ConnectionError: no network); log in with hf auth login" in err


def test_former_options_are_deprecated(birds, tmp_path):
    arguments = ["explain", str(birds / "run"), "test:0", "--out", str(tmp_path / "page")]
    with pytest.warns(FutureWarning, match="--last is deprecated; write --which last"):
        CliRunner().invoke(cli.app, [*arguments, "--last"])
