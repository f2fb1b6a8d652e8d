"""The benchmark scripts of docs/gpu.md run on a CPU; the tables show their records."""

import contextlib
import importlib
import io
import json
import runpy
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

ROOT = Path(__file__).parents[1]
FACTS = {"hardware": {"gpu": "G", "cpu": "C"}, "versions": {"torch": "9"}, "commit": "abc", "seed": 0, "command": "c"}
LAYER = {
    "part": "layer",
    "head": "isice",
    "batch": 128,
    "channels": 256,
    "side": 14,
    "dtype": "float32",
    "backend": "auto",
    "mode": "high",
    "forward_ms": 3.0,
    "forward_backward_ms": 12.345,
    "peak_mib": 250.4,
    "error": 2e-5,
    "gradient_error": 3e-5,
    "median_gradient_error": 1e-5,
    "products_forward": 80,
    "products_backward": 240,
    "tflops": 60.0,
    "of_bf16": 0.08,
    "of_tf32": 0.16,
    "of_bandwidth": 0.01,
}
# A stand-in for the authors' file: a class of the same name and arguments.
AUTHORS = """
import torch

class SICE(torch.nn.Module):
    def __init__(self, iterNum, input_dim, sparsity_val, sice_lrate):
        super().__init__()
        self.rows, self.columns = torch.triu_indices(input_dim, input_dim)

    def forward(self, x):
        x = x.flatten(2)
        return (x @ x.mT)[:, self.rows, self.columns, None]
"""


def run(name, *options):
    """Run a script of benchmarks/ in this process; return its exit code and error output."""
    precision, path, errors = torch.get_float32_matmul_precision(), ROOT / "benchmarks" / f"{name}.py", io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(errors):
        patch.syspath_prepend(str(path.parent))
        patch.setattr(sys, "argv", [str(path), *map(str, options)])
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as stop:
            return stop.code or 0, f"{errors.getvalue()}{stop.code}"
        except Exception:
            return 1, errors.getvalue() + traceback.format_exc()
        finally:
            torch.set_float32_matmul_precision(precision)
    return 0, errors.getvalue()


def record(name, path, *options):
    """The record that a script writes on the CPU."""
    code, errors = run(name, *options, "--device", "cpu", "--out", path)
    assert code == 0, errors[-2000:]
    return json.loads(path.read_text())


@pytest.fixture
def authors(tmp_path):
    path = tmp_path / "SICE.py"
    path.write_text(AUTHORS)
    return path


@pytest.fixture
def generator(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("generate_gpu")


def test_tables_from_records(generator, monkeypatch):
    steps = [
        {"head": "gap", "mode": "high", "step_ms": 50.0, "ratio_to_gap": 1.0, "peak_mib": None},
        {"head": "isice", "mode": "medium", "step_ms": 52.0, "ratio_to_gap": 1.04, "peak_mib": 20000.0},
    ]
    layers = [
        {"part": "limits", "bf16_tflops": 750.0, "copy_gb_per_s": 4000.0},
        LAYER,
        LAYER | {"backend": "published", "mode": "highest", "forward_ms": 21.0, "forward_backward_ms": 130.0},
        LAYER | {"backend": "authors", "mode": "highest", "forward_backward_ms": 137.04},
        LAYER | {"backend": "authors", "mode": "high", "forward_backward_ms": 135.0},
    ]
    loads = [{"backend": "auto", "mode": "highest", "rested_ms": 20.0, "sustained_ms": 22.5, "sm_mhz": 1500.0}]
    again = [LAYER | {"forward_ms": 3.3, "forward_backward_ms": 6.1725}, LAYER | {"mode": "medium"}]
    solved = {"median_iterations": 11, "largest_iterations": 19, "cg_steps": 12, "largest_gap_per_variable": 5e-4}
    sice = [{"spec": "sice(ridge=1.0, tol=0.0005)", "forward_ms": 37.4, "forward_backward_ms": 45.3, **solved}]
    rows = {"training_step_h200": steps, "gpu_speed_h200": layers, "sustained_h200": loads, "cpu_products": []}
    rows |= {"gpu_speed_h200_rerun": again, "sice_layer_h200": sice}
    default = [{"head": "gap", "mode": "high"}, steps[0] | {"head": "partial_correlation", "ratio_to_gap": 1.03}]
    heads = {"name": "partial_correlation", "forward_ms": 1.8, "forward_backward_ms": 3.15, "peak_mib": 272.4}
    rows |= {"training_step_partial_correlation_h200": default, "heads_h200_batch128": [heads]}
    monkeypatch.setattr(generator, "read_results", lambda name: FACTS | {"rows": rows[name]})
    found = generator.pages()
    guide, internals = found[generator.GUIDE], found[generator.INTERNALS]
    assert "| GAP | 50.0 | 1.000 | — | — | — |" in guide
    assert "| iSICE | — | — | 52.0 | 1.040 | — |" in guide
    assert "| partial correlation | 50.0 | 1.030 | — | — | — |" in guide
    assert "| partial correlation | — | 1.80 / 3.15 | — | 272 | — |" in guide
    assert "| iSICE | — | 3.00 / 12.35 | — | 250 | 2e-05 / 1e-05 |" in guide
    assert "G; torch 9; commit abc; seed 0:\n\n```sh\nc\n```" in guide
    assert "| kernels | highest | 20.00 | 22.50 | 1,500 | — | — | — |" in internals
    times = "21.00 / 130.00 | — | — | — | — | 3.00 / 12.35 | — |"
    assert f"| iSICE | 128 | 256 | 14² | 137.0 / 135.0 | {times}" in internals
    assert "| iSICE | 128 | 256 | high | 3.00 / 12.35 | 3.30 / 6.17 | 0.500 |" in internals
    assert "| iSICE | 128 | 256 | medium | — | 3.00 / 12.35 | — |" in internals
    assert "| 1 | 5e-04 | 37 | 45 | 11 / 19 | 12 | 5e-04 |" in internals
    assert "| iSICE | kernels | high | 2e-05 / 3e-05 (1e-05) | — |" in internals
    # 80 stages of two factors and, with the derivative, four: 10 tiles read 64 rows of each,
    # 256 numbers of 2·16 bits.
    terabytes = 128 * 80 * (2 + 4) * 10 * 64 * 256 * 4 / 12.35e-3 / 1e12
    assert f"| iSICE | 128 | 256 | high | 80 + 240 | 60 | 8% | 16% | 1% | {terabytes:.1f} |" in internals
    assert "| product 8192³, bfloat16 | 750 | TFLOP/s |" in internals
    assert "| iSICE | 128 | 256 | — | — | 250 |" in internals


def test_the_exact_solver_as_a_layer_is_counted(tmp_path):
    features, out = tmp_path / "features.npy", tmp_path / "record.json"
    np.save(features, np.random.default_rng(0).random((3, 16, 9), dtype=np.float32))
    specs = ["sice(tol=0.001, ridge=1.0)", "gap"]
    found = record("sice_layer", out, "--features", features, "--specs", *specs, "--repeats", "1")
    solved, average = found["rows"]
    assert solved["largest_gap_per_variable"] <= 1e-3
    assert 0 < solved["cg_steps"] <= 24
    assert "cg_steps" not in average
    assert str(tmp_path) not in found["command"]
    assert specs[0] in found["command"]


def test_layers_are_accurate_and_counted(tmp_path, authors):
    features, out = tmp_path / "features.npy", tmp_path / "record.json"
    np.save(features, np.random.default_rng(0).random((5, 16, 9), dtype=np.float32))
    found = record("gpu_speed", out, "--small", "--modes", "high", "--features", features, "--authors", authors)
    layers = [row for row in found["rows"] if row["part"] == "layer"]
    rows = [row for row in layers if row["backend"] != "authors"]
    assert len(rows) == 4 * 3 + 3  # four layers by three ways and dtypes, three of them as published
    assert [row["mode"] for row in layers if row["backend"] == "authors"] == ["highest", "high"]
    assert str(tmp_path) not in found["command"]
    # N_s = 7: 4 + 5 + 5 for the first six steps and 2 for the last, in each of five inverses;
    # the last one is left out.
    products = {"precision": 16, "isice": 5 * 16, "isice_mlp": 5 * 16}
    for row in rows:
        assert row["error"] < 1e-5
        assert row["real_error"] < 1e-4
        # A gradient in bfloat16 is rounded to 8 bits.
        assert row["gradient_error"] < (1e-5 if row["dtype"] == "float32" else 4e-3)
        if row["head"] in products:
            count = products[row["head"]]
            assert row["products_forward"] == count
            assert row["operations"] == row["batch"] * (4 * count * 16**3 + 3 * 16**2 * row["side"] ** 2)


def test_authors_option_rejects_a_file_without_their_class(tmp_path):
    other = tmp_path / "other.py"
    other.write_text("x = 1")
    options = ["--small", "--heads", "isice", "--modes", "highest", "--dtypes", "float32", "--device", "cpu"]
    code, errors = run("gpu_speed", *options, "--authors", other, "--out", tmp_path / "record.json")
    assert code != 0
    assert "expected a" in errors


def test_training_steps_run(tmp_path):
    options = "--small", "--heads", "gap", "isice", "--modes", "high"
    rows = record("training_step", tmp_path / "record.json", *options)["rows"]
    assert [(row["head"], row["mode"], row["steps"]) for row in rows] == [("gap", "high", 4), ("isice", "high", 4)]
    assert rows[0]["ratio_to_gap"] == 1.0
    assert all(row["loss"] > 0 for row in rows)


@pytest.mark.slow
def test_sustained_load_is_measured(tmp_path, authors):
    options = "--small", "--seconds", "0.2", "--authors", authors
    rows = record("sustained", tmp_path / "sustained.json", *options)["rows"]
    expected = [(backend, mode) for mode in ("highest", "medium") for backend in ("authors", "auto")]
    assert [(row["backend"], row["mode"]) for row in rows] == expected
    assert all(row["rested_ms"] > 0 and row["sustained_ms"] > 0 and row["late_runs"] >= 4 for row in rows)


@pytest.mark.slow
def test_features_of_a_network(tmp_path):
    for i in range(3):
        Image.new("RGB", (20, 24), (80 * i, 0, 0)).save(tmp_path / f"{i}.jpg")
    weights, out = tmp_path / "weights.safetensors", tmp_path / "features.npy"
    torch.manual_seed(0)
    save_file(timm.create_model("test_resnet").state_dict(), weights)
    options = ["--model", "test_resnet", "--weights", weights, "--size", "64", "--channels", "5", "--count"]
    code, errors = run("network_features", tmp_path, out, *options, "2")
    assert code == 0, errors[-2000:]
    features = np.load(out)
    assert features.shape == (2, 5, 4)
    assert not (features[0] == features[1]).all()
    code, errors = run("network_features", tmp_path, out, *options, "9")
    assert code != 0
    assert "expected 9 .jpg files or more" in errors
