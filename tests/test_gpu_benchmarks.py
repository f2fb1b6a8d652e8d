"""The scripts behind docs/gpu.md: they run on any machine, count rightly, and the document shows their records."""

import json
import subprocess
import time

import numpy as np
import pytest
import timm
import torch
from benchmarks import cpu_products, gpu_speed, gpu_tables, network_features, published, sustained, training_step
from benchmarks.measure import median_error
from PIL import Image
from safetensors.torch import save_file

from isice.pooling import create_pooling

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


def test_the_document_shows_the_records():
    text = gpu_tables.DOCUMENT.read_text(encoding="utf-8")
    for name, table in gpu_tables.tables().items():
        assert f"<!-- {name} -->\n{table}\n<!-- /{name} -->" in text, f"{name}: run benchmarks/gpu_speed.py --table"


def test_tables_without_records_say_so(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_tables, "RESULTS", tmp_path)
    found = gpu_tables.tables()
    assert all("| — |" in table for table in found.values())
    assert "Not measured yet." in found["step"]


def test_tables_from_records(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_tables, "RESULTS", tmp_path)
    steps = [
        {"head": "gap", "mode": "high", "step_ms": 50.0, "ratio_to_gap": 1.0, "peak_mib": None},
        {"head": "isice", "mode": "medium", "step_ms": 52.0, "ratio_to_gap": 1.04, "peak_mib": 20000.0},
    ]
    layers = [
        {"part": "limits", "bf16_tflops": 750.0, "copy_gb_per_s": 4000.0},
        LAYER,
        LAYER | {"backend": "published", "mode": "highest", "forward_ms": 21.0, "forward_backward_ms": 130.0},
    ]
    loads = [{"backend": "auto", "mode": "highest", "rested_ms": 20.0, "sustained_ms": 22.5, "sm_mhz": 1500.0}]
    for name, rows in (("training_step_h200", steps), ("gpu_speed_h200", layers), ("sustained_h200", loads)):
        (tmp_path / f"{name}.json").write_text(json.dumps(FACTS | {"rows": rows}))
    found = gpu_tables.tables()
    assert "| GAP | 55.0 | 1.00 | 50.0 | 1.000 | — | — | — |" in found["step"]
    assert "| iSICE | 130.7 | 2.38 | — | — | 52.0 | 1.040 | — |" in found["step"]
    assert "| kernels | highest | 20.00 | 22.50 | 1,500 | — | — | — |" in found["sustained"]
    assert "G; torch 9; commit abc; seed 0; `c`" in found["step"]
    times = "21.00 / 130.00 | — | — | — | — | 3.00 / 12.35 | — |"
    assert f"| iSICE | 128 | 256 | 14² | 126.4 / 95.0 | {times}" in found["layers"]
    assert "| iSICE | kernels | high | 2e-05 / 3e-05 (1e-05) | — |" in found["accuracy"]
    # 80 stages of two factors and, with the derivative, four: 10 tiles read 64 rows of each, 256 numbers of 2·16 bits.
    terabytes = 128 * 80 * (2 + 4) * 10 * 64 * 256 * 4 / 12.35e-3 / 1e12
    assert f"| iSICE | 128 | 256 | high | 80 + 240 | 60 | 8% | 16% | 1% | {terabytes:.1f} |" in found["limits"]
    assert "| product 8192³, bfloat16 | 750 | TFLOP/s |" in found["limits"]
    assert "| iSICE | 128 | 256 | — | — | 250 |" in found["memory"]


@pytest.mark.parametrize("name", published.HEADS)
def test_the_published_order_of_operations_gives_the_layer(name):
    x = torch.rand(2, 6, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    found, expected = published.HEADS[name](x.flatten(2)), create_pooling(name, 6).double()(x)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)
    gradients = [torch.autograd.grad(value.square().sum(), x)[0] for value in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-8)


def test_products_of_the_layers():
    # N_s = 7: 4 + 5 + 5 for the first six steps and 2 for the last, in each of five inverses; the last one is left out.
    assert gpu_speed.count_products("precision") == 16
    assert gpu_speed.count_products("isice") == gpu_speed.count_products("isice_mlp") == 5 * 16


def test_a_record_is_counted_anew(tmp_path):
    row = {"part": "layer", "head": "precision", "batch": 2, "channels": 4, "side": 3, "dtype": "float32"}
    limits = {"part": "limits", "bf16_tflops": 1.0, "fp16_tflops": 1.0, "tf32_tflops": 1.0, "copy_gb_per_s": 1.0}
    path = tmp_path / "record.json"
    path.write_text(json.dumps({"rows": [limits, row | {"forward_backward_ms": 2.0, "operations": 0, "tflops": 9.0}]}))
    gpu_speed.main(["--recount", str(path)])
    record = json.loads(path.read_text())
    operations = 2 * (4 * 16 * 4**3 + 3 * 16 * 9)
    assert record["rows"][1]["operations"] == operations
    assert record["rows"][1]["tflops"] == pytest.approx(operations / 2e-3 / 1e12)
    assert record["rows"][1]["forward_backward_ms"] == 2.0
    assert "counted anew" in record["recounted"]


def test_operations_and_traffic_by_hand():
    found = gpu_speed.arithmetic("precision", gpu_speed.Shape(2, 4, 3), 9, 4)
    assert found["operations"] == 2 * (4 * 16 * 4**3 + 3 * 16 * 9)
    assert found["bytes"] == 2 * (3 * 4 * 9 * 4 + 2 * 10 * 4)
    limits = {"bf16_tflops": 10.0, "fp16_tflops": 10.0, "tf32_tflops": 5.0, "copy_gb_per_s": 1000.0}
    row = {"forward_backward_ms": 1.0, "operations": 1e9, "bytes": 1e8}
    expected = {"tflops": 1.0, "of_bf16": 0.1, "of_fp16": 0.1, "of_tf32": 0.2, "of_bandwidth": 0.1}
    assert gpu_speed.fractions(row, limits) == pytest.approx(expected)


def test_layers_run_and_are_accurate(tmp_path):
    import numpy as np

    features, out = tmp_path / "features.npy", tmp_path / "record.json"
    np.save(features, np.random.default_rng(0).random((5, 16, 9), dtype=np.float32))
    gpu_speed.main(["--small", "--modes", "high", "--features", str(features), "--device", "cpu", "--out", str(out)])
    record = json.loads(out.read_text())
    rows = [row for row in record["rows"] if row["part"] == "layer"]
    assert len(rows) == 4 * 3 + 3  # four layers by three ways and dtypes, three of them as published
    assert str(tmp_path) not in record["command"]
    for row in rows:
        assert row["error"] < 1e-5
        assert row["real_error"] < 1e-4
        # A gradient in bfloat16 is rounded to 8 bits.
        assert row["gradient_error"] < (1e-5 if row["dtype"] == "float32" else 4e-3)


STAND_IN = """
import torch

class SICE(torch.nn.Module):
    def __init__(self, iterNum, input_dim, sparsity_val, sice_lrate):
        super().__init__()
        self.rows, self.columns = torch.triu_indices(input_dim, input_dim)

    def forward(self, x):
        x = x.flatten(2)
        return (x @ x.mT)[:, self.rows, self.columns, None]
"""


def test_the_authors_file_is_timed(tmp_path):
    theirs, out = tmp_path / "SICE.py", tmp_path / "record.json"
    theirs.write_text(STAND_IN)
    options = ["--small", "--heads", "isice", "--modes", "highest", "--dtypes", "float32", "--device", "cpu"]
    gpu_speed.main([*options, "--authors", str(theirs), "--out", str(out)])
    record = json.loads(out.read_text())
    rows = [row for row in record["rows"] if row.get("backend") == "authors"]
    assert [row["mode"] for row in rows] == ["highest", "high"]
    assert all(row["forward_backward_ms"] > 0 and "error" not in row for row in rows)
    assert "--authors FILE" in record["command"]


def test_another_file_is_refused(tmp_path):
    other = tmp_path / "other.py"
    other.write_text("x = 1")
    for path in (other, tmp_path / "missing.py"):
        with pytest.raises(SystemExit, match="expected a"):
            gpu_speed.authors_layer(path, 8)


def test_training_steps_run(tmp_path):
    out = tmp_path / "record.json"
    heads = ["--heads", "gap", "isice", "--modes", "high", "--device", "cpu"]
    training_step.main(["--small", *heads, "--out", str(out)])
    rows = json.loads(out.read_text())["rows"]
    assert [(row["head"], row["mode"], row["steps"]) for row in rows] == [("gap", "high", 4), ("isice", "high", 4)]
    assert rows[0]["ratio_to_gap"] == 1.0
    assert all(row["loss"] > 0 for row in rows)


def test_the_profile_names_the_operations(tmp_path):
    out = tmp_path / "profile.txt"
    training_step.main(["--small", "--profile", "isice", "--device", "cpu", "--profile-out", str(out)])
    assert "_ISICEBackward" in out.read_text()


def test_products_are_recorded_and_replayed():
    a, b = torch.rand(2, 3, 3, 3, generator=torch.Generator().manual_seed(0))
    recorder = cpu_products.recorded(lambda: torch.baddbmm(a @ b, b, a.mT, beta=2.0, alpha=0.5))
    assert [call[0] for call in recorder.calls] == [torch.bmm, torch.baddbmm]
    for (pointer, *_), buffer in recorder.buffers.items():
        for tensor in (a, b):
            if pointer == tensor.data_ptr():
                buffer.copy_(tensor.mT if buffer.stride() != tensor.stride() else tensor)
    recorder.replay()
    torch.testing.assert_close(recorder.calls[-1][2]["out"], 2 * (a @ b) + 0.5 * b @ a.mT)


def test_products_are_counted_by_matrices():
    a = torch.rand(3, 4, 4)
    assert cpu_products.count_products(lambda: (torch.baddbmm(a @ a, a, a), a[:1] @ a[:1], a + a)) == 7
    assert cpu_products.count_products(lambda: a.clone().baddbmm_(a, a)) == 3


def test_kept_matrices_are_counted_once():
    a = torch.rand(2, 3, 3, requires_grad=True)
    assert cpu_products.kept_matrices(lambda a: a * a, a) == 1
    assert cpu_products.kept_matrices(lambda a: a.exp() @ a, a) == 2


def test_the_replay_shares_memory_where_the_operation_did():
    a, memory = torch.rand(1, 2, 2), torch.zeros(3, 2, 2)
    recorder = cpu_products.recorded(lambda: torch.bmm(a, torch.bmm(a, a, out=memory[:1]), out=memory[1:2]))
    (_, _, first), (_, operands, second) = recorder.calls
    assert operands[1] is first["out"]
    assert second["out"].data_ptr() != first["out"].data_ptr()
    overlapping = cpu_products.recorded(lambda: (memory[:2] @ memory[1:], memory[1:] @ memory[:2]))
    lower, upper = overlapping.calls[0][1]
    assert upper.data_ptr() - lower.data_ptr() == memory[0].nbytes


AUTHORS = """
import torch
class SICE(torch.nn.Module):
    def __init__(self, iterNum, input_dim, sparsity_val, sice_lrate):
        super().__init__()
    def forward(self, x):
        rows, columns = torch.triu_indices(x.shape[1], x.shape[1])
        x = x.flatten(2)
        return (x @ x.mT)[:, rows, columns].unsqueeze(-1)
"""


def test_the_script_for_load_runs(tmp_path):
    path, authors = tmp_path / "sustained.json", tmp_path / "authors.py"
    authors.write_text(AUTHORS)
    options = ["--small", "--seconds", "0.2", "--device", "cpu", "--authors", str(authors), "--out", str(path)]
    assert sustained.main(options) == 0
    rows = json.loads(path.read_text())["rows"]
    expected = [(backend, mode) for mode in ("highest", "medium") for backend in ("authors", "auto")]
    assert [(row["backend"], row["mode"]) for row in rows] == expected
    assert all(row["rested_ms"] > 0 and row["sustained_ms"] > 0 and row["late_runs"] >= 4 for row in rows)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("1500, 690, 1980, 700\n1600, 698, 1980, 700\n1700, 699, 1980, 700\n17", (1600.0, 698.0, 1980.0, 700.0)),
        ("1500, [N/A], 1980, [N/A]\n", (1500.0, None, 1980.0, None)),
        ("", (None, None, None, None)),
    ],
)
def test_clock_and_power_as_the_driver_tells_them(answer, expected, tmp_path):
    told = tmp_path / "told"
    script = ["sh", "-c", 'printf "%s" "$0"; touch "$1"; exec sleep 60', answer, str(told)]
    process = subprocess.Popen(script, stdout=subprocess.PIPE, text=True)
    while not told.exists() and process.poll() is None:
        time.sleep(0.01)
    found = sustained.finish_reading(process)
    assert found == {name: value for name, value in zip(sustained.NAMES, expected, strict=True) if value is not None}
    assert sustained.finish_reading(None) == {}


def test_features_of_a_network(tmp_path):
    for i in range(3):
        Image.new("RGB", (20, 24), (80 * i, 0, 0)).save(tmp_path / f"{i}.jpg")
    weights, out = tmp_path / "weights.safetensors", tmp_path / "features.npy"
    torch.manual_seed(0)
    save_file(timm.create_model("test_resnet").state_dict(), weights)
    options = ["--model", "test_resnet", "--weights", str(weights), "--size", "64", "--channels", "5", "--count", "2"]
    assert network_features.main([str(tmp_path), str(out), *options]) == 0
    features = np.load(out)
    assert features.shape == (2, 5, 4)
    assert not (features[0] == features[1]).all()
    for path, count, message in (
        (out, "9", r"expected 9 \.jpg files or more"),
        (out, "0", "--count of 1 or more"),
        (tmp_path / "features", "2", r"expected a \.npy file"),
        (tmp_path / "none" / "features.npy", "2", "a folder that exists"),
    ):
        with pytest.raises(SystemExit, match=message):
            network_features.main([str(tmp_path), str(path), *options[:-1], count])


def test_the_median_image():
    expected = torch.ones(3, 4, dtype=torch.float64)
    value = expected + torch.tensor([[0.0], [0.1], [5.0]])
    assert median_error(value, expected) == pytest.approx(0.1, rel=1e-6)
