"""The trainer starts data-driven poolings from training features: once, recorded, at first."""

import contextlib

import pytest
import torch

from isice.config import override
from isice.records import read_record
from isice.train import train_run
from isice.train.checkpoint import read_checkpoint
from isice.train.trainer import Trainer
from tests.cli._invoke import invoke
from tests.train._tiny import TINY, weights_of, without_times

NETVLAD = override(TINY, ["model.pooling=netvlad(n_clusters=4)", "optim.lr=1e-12", "optim.epochs=1"])


def test_netvlad_starts_at_means_of_training_features(tmp_path):
    record = train_run(NETVLAD, tmp_path)
    assert record["initialized_from_images"] == 256
    centres = read_checkpoint(tmp_path, "last").weights["pooling.centres"]
    # Means of unit vectors that are not negative; random directions have length one and both signs.
    assert (centres >= -1e-6).all()
    assert (centres.norm(dim=1) < 1 - 1e-4).all()


def test_a_pooling_with_weights_from_a_file_keeps_them(tmp_path):
    centres = []
    for name, settings in (("first", []), ("second", ["seed=1", f"model.checkpoint_path={tmp_path / 'all.pth'}"])):
        record = train_run(override(NETVLAD, settings), tmp_path / name)
        weights = read_checkpoint(tmp_path / name, "last").weights
        torch.save(weights, tmp_path / "all.pth")
        centres.append(weights["pooling.centres"])
    assert record["initialized_from_images"] == 0
    torch.testing.assert_close(*centres)


def test_a_pooling_starts_from_data_beside_a_backbone_from_a_file(tmp_path):
    train_run(NETVLAD, tmp_path / "first")
    weights = read_checkpoint(tmp_path / "first", "last").weights
    backbone = {name: value for name, value in weights.items() if name.startswith("backbone.")}
    torch.save(backbone, tmp_path / "backbone.pth")
    config = override(NETVLAD, [f"model.checkpoint_path={tmp_path / 'backbone.pth'}"])
    assert train_run(config, tmp_path / "second")["initialized_from_images"] == 256


def test_a_pooling_with_some_of_its_weights_from_a_file_starts_from_data(tmp_path):
    train_run(NETVLAD, tmp_path / "first")
    weights = read_checkpoint(tmp_path / "first", "last").weights
    del weights["pooling.centres"]
    torch.save(weights, tmp_path / "some.pth")
    config = override(NETVLAD, [f"model.checkpoint_path={tmp_path / 'some.pth'}"])
    assert train_run(config, tmp_path / "second")["initialized_from_images"] == 256


def test_a_pooling_without_a_start_records_none(tmp_path):
    assert train_run(override(TINY, ["optim.epochs=1"]), tmp_path)["initialized_from_images"] is None


def test_a_resumed_run_is_not_initialised_again(tmp_path, monkeypatch):
    config = override(NETVLAD, ["optim.lr=0.01", "optim.epochs=2"])
    whole = train_run(config, tmp_path / "whole")
    first_epoch = Trainer._end_epoch

    def stop_after_one(self, epoch):
        row = first_epoch(self, epoch)
        if epoch == 1:
            raise KeyboardInterrupt
        return row

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_end_epoch", stop_after_one)
        with contextlib.suppress(KeyboardInterrupt):
            train_run(config, tmp_path / "parts")
    resumed = train_run(config, tmp_path / "parts")
    assert resumed["initialized_from_images"] == whole["initialized_from_images"] == 256
    assert weights_of(tmp_path / "parts") == weights_of(tmp_path / "whole")
    assert without_times(resumed["epochs"]) == without_times(whole["epochs"])


def test_workers_do_not_change_the_start(tmp_path):
    none = train_run(NETVLAD, tmp_path / "none")
    two = train_run(override(NETVLAD, ["data.workers=1"]), tmp_path / "one")
    assert none["initialized_from_images"] == two["initialized_from_images"]
    assert weights_of(tmp_path / "none") == weights_of(tmp_path / "one")


def test_standardized_classifier_inputs_have_unit_variance_at_the_first_step(tmp_path, monkeypatch):
    inputs, start = [], Trainer._initialize

    def start_and_watch(self):
        start(self)
        self.model.classifier.register_forward_pre_hook(lambda module, args: inputs.append(args[0].detach()))

    monkeypatch.setattr(Trainer, "_initialize", start_and_watch)
    settings = ["optim.epochs=1", "optim.warmup_epochs=0", "model.reduce=8", "device=cpu", "tensorboard=false"]
    options = ["--pooling", "isqrt_cov(standardize=True)", "--data", "textures", "--out", str(tmp_path)]
    invoke("train", *options, *(part for s in settings for part in ("--set", s)))
    assert inputs[0].var(dim=0).mean().item() == pytest.approx(1.0, abs=0.3)  # of one batch
    record = read_record(tmp_path)
    assert record["initialized_from_images"] == 256
    assert record["epochs"][-1]["train_accuracy"] > 0.4  # chance: 0.25
