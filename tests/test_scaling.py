"""Scaling: the projection agrees with arithmetic by hand; the benchmark saves after every case."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
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


@pytest.fixture
def page(monkeypatch):
    """The generator of the scaling pages."""
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("generate_scaling")


def test_a_ring_of_two_sends_everything_once(page):
    assert [page.ring_bytes(100, n) for n in (1, 2, 8)] == [0, 100, 175]


def test_one_gpu_exchanges_nothing(page):
    assert page.step_seconds(ROW, 1) == pytest.approx(0.1)
    assert page.run_hours(ROW, 1) == pytest.approx(100 * 1_281_167 / 640 / 3600)
    assert page.memory_bytes(ROW, 1) == 20e9


def test_many_gpus_wait_for_the_exchange(page):
    # 200 MB of gradients: 175 % of them at 150 GB/s in a node, 196.875 % at 25 GB/s between nodes.
    assert page.step_seconds(ROW, 8) == pytest.approx(0.1 + 0.35e9 / 150e9)
    assert page.step_seconds(ROW, 64) == pytest.approx(0.1 + 0.39375e9 / 25e9)
    assert page.run_hours(ROW, 64) == pytest.approx(100 * 1_281_167 / 4096 * (0.1 + 0.01575) / 3600)
    assert page.memory_bytes(ROW, 8) == 20.2e9


def test_tables_from_a_record(page):
    rows = [ROW, ROW | {"step_ms": 1, "data": "CUB-200"}]
    record = {"rows": rows, "hardware": {"gpu": "G", "cpu": "C"}, "note": "Stopped early"}
    record |= {"versions": {"torch": "9", "timm": "8"}}
    assert "| ImageNet-1k | 224 px | resnet50 | isice | 100.0 | 7 | 640 | 20.0 |" in page.gpu_steps(rows)
    assert page.measured_on(record) == "Measured on one G, torch 9, timm 8. Stopped early."
    assert "| ImageNet-1k | resnet50 | isice | 55.6 h | 7.1 h | 1.0 h | 86% | 20.2 |" in page.projection(rows)
    assert "CUB-200" not in page.projection(rows)


@pytest.mark.slow
def test_the_record_is_saved_after_every_case(tmp_path):
    out = tmp_path / "record.json"
    options = ["--gpu", "--device", "cpu", "--data", "ImageNet-1k", "--backbones", "small_cnn", "no_such_backbone"]
    options += ["--poolings", "gap", "--batch", "2", "--seconds", "0", "--out", str(out)]
    command = [sys.executable, str(ROOT / "benchmarks" / "scaling.py"), *options]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
    (row,) = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert (row["backbone"], row["head"], row["image_size"]) == ("small_cnn", "gap", 224)
    assert row["steps"] >= 5
    assert row["step_ms"] > 0
