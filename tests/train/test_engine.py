"""The loop: it learns, repeats itself, adds auxiliary losses, and stops at a loss that is not finite."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from isice.config import RunConfig, config_hash, override
from isice.train import train_run
from isice.train.engine import check_finite, resolve_device, train_loader

TINY = override(
    RunConfig(),
    [
        "model.pooling=isqrt_cov",
        "model.reduce=8",
        "data.val_fraction=0.2",
        "optim.epochs=2",
        "optim.lr=0.01",
        "optim.schedule=cosine",
        "device=cpu",
        "threads=1",
    ],
)


class Linear(nn.Module):
    """A model with the network's parts and a chosen auxiliary loss."""

    def __init__(self, aux: float = 0.0) -> None:
        super().__init__()
        self.pooling = nn.Flatten()
        self.classifier = nn.Linear(64, 10)
        self.aux = aux

    def forward(self, x, return_loss=False):
        logits = self.classifier(self.pooling(x))
        return (logits, logits.new_tensor(self.aux)) if return_loss else logits


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return folder, train_run(TINY, folder)


def test_it_learns(trained):
    _, record = trained
    assert record["accuracy"]["test"] > 0.4  # chance is 0.1
    assert record["epochs"][-1]["train_loss"] < record["epochs"][0]["train_loss"]


def test_the_record_says_everything(trained):
    folder, record = trained
    assert json.loads((folder / "record.json").read_text(encoding="utf-8")) == record
    assert not list(folder.glob("*.partial"))
    assert record["status"] == "finished"
    assert record["hash"] == config_hash(TINY)
    assert record["images"] == {"train": 1078, "val": 269, "test": 450}
    assert record["versions"]["torch"] == torch.__version__.split("+")[0]
    assert record["hardware"]["device"] == "cpu"
    parameters = record["parameters"]
    assert parameters["total"] == sum(n for name, n in parameters.items() if name != "total")
    assert parameters["classifier"] == 10 * (8 * 9 // 2) + 10
    assert [row["epoch"] for row in record["epochs"]] == [1, 2]


def test_the_arrays_are_the_heads_matrices(trained):
    folder, _ = trained
    with np.load(folder / "arrays.npz", allow_pickle=False) as arrays:
        assert arrays["matrices"].shape == (10, 8, 8)
        np.testing.assert_allclose(arrays["matrices"], arrays["matrices"].swapaxes(1, 2), atol=1e-6)
        assert arrays["images"].shape == (10, 8, 8, 1)


def test_same_seed_same_result(trained, tmp_path):
    _, first = trained
    again = train_run(TINY, tmp_path)
    assert [row["train_loss"] for row in again["epochs"]] == [row["train_loss"] for row in first["epochs"]]
    assert again["accuracy"] == first["accuracy"]


def test_other_seed_other_order():
    part = torch.utils.data.TensorDataset(torch.arange(256), torch.zeros(256))
    orders = [[x.tolist() for x, _ in train_loader(override(TINY, [f"seed={seed}"]), part)] for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]


def test_auxiliary_loss_is_added(tmp_path):
    losses = [
        train_run(TINY, tmp_path / str(aux), build=lambda config, splits, aux=aux: Linear(aux))["epochs"][0][
            "train_loss"
        ]
        for aux in (0.0, 5.0)
    ]
    assert losses[1] - losses[0] == pytest.approx(5.0, abs=1e-4)


def test_nan_stops_with_the_place_and_leaves_a_record(tmp_path):
    with pytest.raises(FloatingPointError, match=r"got nan at epoch 1, step 1; lower optim\.lr"):
        train_run(TINY, tmp_path, build=lambda config, splits: Linear(float("nan")))
    record = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    assert record["status"] == "failed"
    assert "epoch 1, step 1" in record["error"]
    assert "Traceback" in record["traceback"]


def test_a_device_that_is_not_there_leaves_a_record(tmp_path):
    with pytest.raises(ValueError, match="expected a device like"):
        train_run(override(TINY, ["device=quantum"]), tmp_path)
    assert json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))["status"] == "failed"


def test_infinite_loss_is_not_finite():
    with pytest.raises(FloatingPointError, match="got inf at epoch 3, step 7"):
        check_finite(torch.tensor(float("inf")), 3, 7, 0.1)


def test_interrupted_run_leaves_no_record(tmp_path):
    def interrupt(config, splits):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(TINY, tmp_path, build=interrupt)
    assert not (tmp_path / "record.json").exists()


def test_bf16_trains(tmp_path):
    record = train_run(override(TINY, ["precision=bf16", "optim.epochs=1"]), tmp_path)
    assert np.isfinite(record["epochs"][0]["train_loss"])


def test_threads_are_set_for_the_run_only(tmp_path):
    before, seen = torch.get_num_threads(), []
    other = before + 1

    def build(config, splits):
        seen.append(torch.get_num_threads())
        return Linear()

    record = train_run(override(TINY, [f"threads={other}", "optim.epochs=1"]), tmp_path, build=build)
    assert seen == [other]
    assert record["hardware"]["threads"] == other
    assert torch.get_num_threads() == before


def test_devices():
    assert resolve_device("cpu").type == "cpu"
    with pytest.raises(ValueError, match="expected a device like"):
        resolve_device("quantum")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="there is no CUDA"):
            resolve_device("cuda")


@pytest.mark.gpu
def test_trains_on_a_gpu(tmp_path):
    record = train_run(override(TINY, ["device=cuda"]), tmp_path)
    assert record["accuracy"]["test"] > 0.4
    assert record["hardware"]["gpu"]
