"""The benchmark of pooling layers."""

import json

import torch
from benchmarks import heads


def test_times_one_thread(tmp_path, monkeypatch):
    threads = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    options = [
        "--batch",
        "2",
        "--channels",
        "8",
        "--side",
        "4",
        "--repeats",
        "2",
        "--out",
        str(tmp_path / "heads.json"),
    ]
    assert heads.main(["--only", "gap", "partial_correlation", *options]) == 0
    assert threads == [1]
    record = json.loads((tmp_path / "heads.json").read_text(encoding="utf-8"))
    assert "heads.py --only gap partial_correlation --device cpu --batch 2" in record["command"]
    assert [row["name"] for row in record["rows"]] == ["gap", "partial_correlation"]
    assert [row["repeats"] for row in record["rows"]] == [2, 2]
