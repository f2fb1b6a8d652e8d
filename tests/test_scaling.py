"""docs/scaling.md: its tables are those of the records, and its projections are what one computes by hand."""

import json
from argparse import Namespace

import pytest
import torch
from benchmarks import scaling, scaling_tables
from benchmarks.scaling_tables import DOCUMENT, memory_bytes, ring_bytes, run_hours, step_seconds, tables

ROW = {
    "data": "ImageNet-1k",
    "backbone": "resnet50",
    "head": "isice",
    "batch": 64,
    "image_size": 224,
    "parameters": 50_000_000,
    "steps": 7,
    "step_ms": 100.0,
    "images_per_second": 640.0,
    "peak_gpu_bytes": 20_000_000_000,
}


def test_the_document_shows_the_records():
    text = DOCUMENT.read_text(encoding="utf-8")
    for name, table in tables().items():
        assert f"<!-- {name} -->\n{table}\n<!-- /{name} -->" in text, name


def test_a_ring_of_two_sends_everything_once():
    assert [ring_bytes(100, n) for n in (1, 2, 8)] == [0, 100, 175]


def test_one_gpu_exchanges_nothing():
    assert step_seconds(ROW, 1) == pytest.approx(0.1)
    assert run_hours(ROW, 1) == pytest.approx(100 * 1_281_167 / 640 / 3600)
    assert memory_bytes(ROW, 1) == 20e9


def test_many_gpus_wait_for_the_exchange():
    # 200 MB of gradients: 175 % of them at 150 GB/s in a node, 196.875 % at 25 GB/s between nodes.
    assert step_seconds(ROW, 8) == pytest.approx(0.1 + 0.35e9 / 150e9)
    assert step_seconds(ROW, 64) == pytest.approx(0.1 + 0.39375e9 / 25e9)
    assert run_hours(ROW, 64) == pytest.approx(100 * 1_281_167 / 4096 * (0.1 + 0.01575) / 3600)
    assert memory_bytes(ROW, 8) == 20.2e9


def test_tables_from_a_gpu_record(tmp_path, monkeypatch):
    monkeypatch.setattr(scaling_tables, "RESULTS", tmp_path)
    missing = tables()
    assert "| — |" in missing["gpu"]
    assert "Not measured yet." in missing["gpu"]
    record = {"rows": [ROW, ROW | {"step_ms": 1, "data": "CUB-200"}], "hardware": {"gpu": "G", "cpu": "C"}}
    record |= {"versions": {"torch": "9", "timm": "8"}, "note": "Stopped early"}
    (tmp_path / "scaling_gpu.json").write_text(json.dumps(record))
    found = tables()
    assert "| ImageNet-1k | 224 px | resnet50 | isice | 100.0 | 7 | 640 | 20.0 |" in found["gpu"]
    assert "Measured on one G, torch 9, timm 8. Stopped early." in found["gpu"]
    assert "| ImageNet-1k | resnet50 | isice | 55.6 h | 7.1 h | 1.0 h | 86% | 20.2 |" in found["projection"]
    assert "CUB-200" not in found["projection"]


def test_steps_are_timed_even_without_time():
    found = scaling.time_steps("small_cnn", "gap", 8, 3, 2, torch.device("cpu"), seconds=0.0)
    assert found["steps"] == scaling.FEWEST_STEPS


def test_a_gpu_record_is_saved_after_every_case(monkeypatch):
    def time_steps(backbone, head, *rest):
        if head == "isice":
            raise KeyboardInterrupt
        return {"step_ms": 1.0}

    monkeypatch.setattr(scaling, "time_steps", time_steps)
    saved = []
    with pytest.raises(KeyboardInterrupt):
        scaling.measure_gpu(None, Namespace(seconds=1.0, batch=2), lambda rows: saved.append(len(rows)))
    assert saved == [1, 2]
