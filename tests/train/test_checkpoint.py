"""Checkpoints: atomic writes, detection of damage, no execution of pickles."""

import errno
import hashlib
import json
import os
import pickle
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from isice import _atomic
from isice.config import RunConfig
from isice.models import create_model
from isice.train import load_trained
from isice.train.checkpoint import has_checkpoint, load_weights_into, read_checkpoint, save_checkpoint


def network():
    return create_model("small_cnn", pooling="isqrt_cov(n_iter=3)", num_classes=3, reduce=8, in_chans=2)


def save(folder, model, which="last", epoch=1, state=None):
    return save_checkpoint(
        folder, which, config=RunConfig(), classes=("a", "b", "c"), model=model, epoch=epoch, step=0, state=state
    )


def test_round_trip(tmp_path):
    model = network().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.rand(4, 2, 8, 8)).sum().backward()
    optimizer.step()
    save(tmp_path, model, state={"optimizer": optimizer.state_dict(), "rows": [{"epoch": 1, "loss": 0.5}]})
    found = read_checkpoint(tmp_path)
    assert all(torch.equal(found.weights[name], value) for name, value in model.state_dict().items())
    assert found.state["rows"] == [{"epoch": 1, "loss": 0.5}]
    moments = optimizer.state_dict()["state"][0]["exp_avg"]
    assert torch.equal(found.state["optimizer"]["state"][0]["exp_avg"], moments)
    assert found.meta["epoch"] == 1


def test_load_trained_builds_the_same_network(tmp_path):
    model = network().eval()
    save(tmp_path, model, "best", epoch=7)
    loaded = load_trained(tmp_path)
    x = torch.rand(2, 2, 8, 8)
    assert torch.equal(loaded.model(x), model(x))
    assert (loaded.classes, loaded.config, loaded.record, loaded.epoch) == (("a", "b", "c"), RunConfig(), {}, 7)


def test_shared_weights_are_saved(tmp_path):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    save(tmp_path, model)
    load_weights_into(model, read_checkpoint(tmp_path).weights, "there")


def test_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="train first"):
        load_trained(tmp_path)
    save(tmp_path, network(), "last")
    with pytest.raises(FileNotFoundError, match="use which='last'"):
        load_trained(tmp_path)
    with pytest.raises(ValueError, match="to be one of 'best', 'last'"):
        load_trained(tmp_path, "first")


@pytest.mark.parametrize("name", ["model.safetensors", "state.pt"])
def test_damage_is_found(tmp_path, name):
    place = save(tmp_path, network(), state={"step": 3})
    content = bytearray((place / name).read_bytes())
    content[len(content) // 2] ^= 1
    (place / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name}.*it is damaged"):
        read_checkpoint(tmp_path)
    (place / name).unlink()
    with pytest.raises(FileNotFoundError, match=rf"{name}.*which is missing"):
        read_checkpoint(tmp_path)


def test_another_format_is_refused(tmp_path):
    place = save(tmp_path, network())
    meta = json.loads((place / "meta.json").read_text())
    (place / "meta.json").write_text(json.dumps(meta | {"schema": 99}))
    with pytest.raises(ValueError, match=r"expected format 1 .* got 99"):
        read_checkpoint(tmp_path)


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_is_not_executed(tmp_path, zipped):
    place = save(tmp_path, network(), state={"step": 3})
    state = place / "state.pt"
    if zipped:
        torch.save({"step": Bomb(tmp_path / "executed")}, state)
    else:
        state.write_bytes(pickle.dumps(Bomb(tmp_path / "executed"), protocol=2))
    meta = json.loads((place / "meta.json").read_text())
    del meta["sha256"], meta["data"]  # as an attacker would write it
    meta["files"]["state.pt"] = hashlib.sha256(state.read_bytes()).hexdigest()
    (place / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(ValueError, match="expected plain tensors and numbers"):
        read_checkpoint(tmp_path)
    assert not (tmp_path / "executed").exists()


def test_weights_that_do_not_fit(tmp_path):
    save(tmp_path, nn.Linear(2, 2))
    weights = read_checkpoint(tmp_path).weights
    with pytest.raises(ValueError, match="differences in weight; the run used another model"):
        load_weights_into(nn.Linear(3, 2), weights, "there")
    with pytest.raises(ValueError, match="differences in bias"):
        load_weights_into(nn.Linear(2, 2, bias=False), weights, "there")


@pytest.mark.parametrize("files_written", [0, 1, 2])
def test_full_disk_keeps_the_old_one(tmp_path, monkeypatch, files_written):
    old = network()
    save(tmp_path, old, epoch=1)
    left = [files_written]

    def write(path, content):
        if left[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left[0] -= 1
        path.write_bytes(content)

    monkeypatch.setattr(_atomic, "write_synced", write)
    with pytest.raises(OSError, match="No space left on device; the previous one is intact; free disk space") as caught:
        save(tmp_path, network(), epoch=2, state={"step": 1})
    assert caught.value.errno == errno.ENOSPC
    found = read_checkpoint(tmp_path)
    assert found.meta["epoch"] == 1
    assert torch.equal(found.weights["classifier.weight"], old.classifier.weight)
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize("renames", [0, 1])
def test_a_kill_between_the_renames_loses_nothing(tmp_path, monkeypatch, renames):
    save(tmp_path, network(), epoch=1)
    left, rename = [renames], Path.rename

    def dying(path, target):
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", dying)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, network(), epoch=2)
    assert has_checkpoint(tmp_path)
    assert read_checkpoint(tmp_path).meta["epoch"] == 1
    save(tmp_path, network(), epoch=3)
    assert read_checkpoint(tmp_path).meta["epoch"] == 3


def test_a_reader_does_not_disturb_a_writer(tmp_path, monkeypatch):
    save(tmp_path, network(), epoch=1)
    rename, seen = Path.rename, []

    def read_between(path, target):
        result = rename(path, target)
        seen.append(read_checkpoint(tmp_path).meta["epoch"])
        return result

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", read_between)
        save(tmp_path, network(), epoch=2)
    assert seen == [1, 2]


def test_a_writer_saves_the_moment_of_the_call_and_does_not_hold_up_training(tmp_path, monkeypatch):
    from isice.train import checkpoint

    model, writing, started = network(), threading.Event(), threading.Event()
    write = checkpoint.save_checkpoint

    def slow(*arguments, **options):
        started.set()
        assert writing.wait(10)
        return write(*arguments, **options)

    options = {"config": RunConfig(), "classes": ("a", "b"), "model": model, "step": 0}
    writer = checkpoint.CheckpointWriter()
    writer.save(tmp_path, "last", epoch=1, state={"moment": torch.zeros(1)}, **options)  # the first: complete
    assert read_checkpoint(tmp_path, "last").meta["epoch"] == 1
    monkeypatch.setattr(checkpoint, "save_checkpoint", slow)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    moment = torch.ones(1)
    writer.save(tmp_path, "last", epoch=2, state={"moment": moment}, **options)
    assert started.wait(10)
    moment += 1
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 1
    assert read_checkpoint(tmp_path, "last").meta["epoch"] == 1  # the previous one, until it is written
    writing.set()
    writer.wait()
    saved = read_checkpoint(tmp_path, "last")
    assert saved.meta["epoch"] == 2
    assert saved.state["moment"].item() == 1
    for name, value in saved.weights.items():
        assert torch.equal(value, before[name])
