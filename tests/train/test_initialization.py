"""The trainer starts data-driven poolings from training features: once, recorded, before the first step."""

import contextlib

from isice.config import override
from isice.train import train_run
from isice.train.checkpoint import read_checkpoint
from tests.train._tiny import TINY, weights_of, without_times

NETVLAD = override(TINY, ["model.pooling=netvlad(n_clusters=4)", "optim.lr=1e-12", "optim.epochs=1"])


def test_netvlad_starts_at_means_of_training_features(tmp_path):
    record = train_run(NETVLAD, tmp_path)
    assert record["initialized_from_images"] == 256
    centres = read_checkpoint(tmp_path, "last").weights["pooling.centres"]
    # Means of unit vectors that are not negative; random directions have length one and both signs.
    assert (centres >= -1e-6).all()
    assert (centres.norm(dim=1) < 1 - 1e-4).all()


def test_a_pooling_without_a_start_records_none(tmp_path):
    assert train_run(override(TINY, ["optim.epochs=1"]), tmp_path)["initialized_from_images"] is None


def test_a_resumed_run_is_not_initialised_again(tmp_path, monkeypatch):
    config = override(NETVLAD, ["optim.lr=0.01", "optim.epochs=2"])
    whole = train_run(config, tmp_path / "whole")
    from isice.train.trainer import Trainer

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
