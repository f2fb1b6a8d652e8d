"""Augmented batches in the loop: resumed bit for bit, mixed labels, averages of last epochs."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from isice.config import override
from isice.data.augmentation import Mixed
from isice.train import train_run
from isice.train.checkpoint import read_checkpoint
from isice.train.losses import classification_loss
from isice.train.trainer import Trainer

from ._tiny import TINY, build_linear, weights_of, without_times

AUGMENTED = override(
    TINY,
    ["augment.crop_scale=0.5", "augment.policy=trivial", "augment.erase=0.3", "augment.mixup=0.3", "augment.cutmix=1"],
)


def test_mixed_loss_is_that_of_soft_labels():
    logits, target, other = torch.randn(4, 5), torch.tensor([0, 1, 2, 3]), torch.tensor([4, 1, 0, 2])
    one_hot = torch.nn.functional.one_hot
    soft = 0.3 * one_hot(target, 5) + 0.7 * one_hot(other, 5)
    loss = classification_loss(logits, Mixed(logits, target, other, 0.3), label_smoothing=0.1)
    torch.testing.assert_close(loss, cross_entropy(logits, soft, label_smoothing=0.1))
    plain = classification_loss(logits, Mixed(logits, target), label_smoothing=0.1)
    assert torch.equal(plain, cross_entropy(logits, target, label_smoothing=0.1))


def test_resumed_in_the_middle_of_an_epoch_is_bit_identical(tmp_path, monkeypatch):
    config = override(AUGMENTED, ["checkpoint_every_steps=3"])
    whole = train_run(config, tmp_path / "whole", build=build_linear)
    step = Trainer._step

    def killed(self, epoch, number, batches):
        if (epoch, number) == (2, 5):
            raise KeyboardInterrupt
        return step(self, epoch, number, batches)

    monkeypatch.setattr(Trainer, "_step", killed)
    with pytest.raises(KeyboardInterrupt):
        train_run(config, tmp_path / "killed", build=build_linear)
    monkeypatch.undo()
    resumed = train_run(config, tmp_path / "killed", resume="must", build=build_linear)
    assert without_times(resumed["epochs"]) == without_times(whole["epochs"])
    assert weights_of(tmp_path / "killed") == weights_of(tmp_path / "whole")


def test_augmentation_changes_training_and_not_evaluation(tmp_path):
    plain = train_run(TINY, tmp_path / "plain", build=build_linear)
    augmented = train_run(AUGMENTED, tmp_path / "augmented", build=build_linear)
    assert augmented["epochs"][0]["train_loss"] > plain["epochs"][0]["train_loss"]
    assert augmented["epochs"][-1]["val_accuracy"] > augmented["epochs"][-1]["train_accuracy"]


def test_portions_get_the_same_draws(tmp_path):
    config = override(TINY, ["augment.crop_scale=0.5", "augment.erase=0.5"])
    one = train_run(config, tmp_path / "one", build=build_linear)
    two = train_run(override(config, ["optim.accumulate=2"]), tmp_path / "two", build=build_linear)
    for a, b in zip(one["epochs"], two["epochs"], strict=True):
        assert b["train_loss"] == pytest.approx(a["train_loss"], rel=1e-4)


def test_average_over_the_last_epochs(tmp_path, monkeypatch):
    seen = []
    update = Trainer._step

    def note(self, epoch, step, batches):
        images = update(self, epoch, step, batches)
        seen.append((epoch, self.model.classifier.weight.detach().clone()))
        return images

    monkeypatch.setattr(Trainer, "_step", note)
    train_run(override(TINY, ["optim.epochs=3", "optim.swa_epochs=2"]), tmp_path, build=build_linear)
    expected = torch.stack([weight for epoch, weight in seen if epoch >= 2]).mean(0)
    torch.testing.assert_close(read_checkpoint(tmp_path).weights["classifier.weight"], expected, rtol=1e-5, atol=1e-6)
