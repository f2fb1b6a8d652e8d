"""Two gloo processes compute what one computes, with a model that processes each image alone.

BatchNorm does not: its statistics are those of each process's share unless
``sync_bn`` is set (GPU only).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from isice.records import read_evaluations
from isice.train import train_run
from isice.train.checkpoint import read_checkpoint

from ._tiny import TINY, build_linear, weights_of, without_times

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += ["-m", "tests.train._two_processes", str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def record_of(folder):
    return json.loads((folder / "record.json").read_text(encoding="utf-8"))


def test_two_processes_compute_what_one_computes(two, tmp_path):
    one, both = train_run(TINY, tmp_path, build=build_linear), record_of(two / "whole")
    assert (one["processes"], both["processes"]) == (1, 2)
    for a, b in zip(one["epochs"], both["epochs"], strict=True):
        assert b["train_loss"] == pytest.approx(a["train_loss"], rel=1e-6)
        assert b["lr"] == a["lr"]
        for key in ("train_accuracy", "val_accuracy"):
            assert b[key] == pytest.approx(a[key], abs=2e-3)
    weights = [read_checkpoint(folder).weights["classifier.weight"] for folder in (tmp_path, two / "whole")]
    torch.testing.assert_close(*weights, rtol=1e-3, atol=1e-4)
    assert both["accuracy"]["test"] == pytest.approx(one["accuracy"]["test"], abs=5e-3)
    (scores,) = read_evaluations(two / "whole")
    assert (scores["images"], scores["top1"]) == (225, both["accuracy"]["test"])


def test_two_processes_resume(two):
    whole, resumed = record_of(two / "whole"), record_of(two / "resumed")
    assert len(resumed["sessions"]) == 2
    assert without_times(resumed["epochs"]) == without_times(whole["epochs"])
    assert weights_of(two / "resumed") == weights_of(two / "whole")


def test_a_data_driven_start_is_that_of_rank_0_in_both_processes(two):
    first, second = (torch.load(two / f"start{rank}.pt", weights_only=True) for rank in range(2))
    assert first["images"] == second["images"] == record_of(two / "netvlad")["initialized_from_images"] == 256
    assert (first["calls"], second["calls"]) == (1, 0)
    assert (first["pooling"]["centres"] >= -1e-6).all()  # means of training features, not random directions
    for name, value in first["pooling"].items():
        assert torch.equal(value, second["pooling"][name]), name


def test_batch_norm_is_converted_after_the_start_from_data(two):
    """Rank 0 computes the start alone; SyncBatchNorm would wait for the other processes."""
    assert (two / "converted.txt").read_text(encoding="utf-8") == "after the start: True"
