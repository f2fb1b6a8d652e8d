"""The loop: micro-batches, clipping, smoothing, stages, freezing, averaging, non-finite losses."""

import json

import pytest
import timm
import torch
from torch import nn

from isice.config import override
from isice.data import load_splits
from isice.train import train_run, trainer
from isice.train.checkpoint import read_checkpoint
from isice.train.loaders import EpochBatches
from isice.train.run import build_model, seed_everything
from isice.train.trainer import Trainer

from ._tiny import TINY, Linear, build_linear


def first_loss(tmp_path, *settings, build=build_linear):
    folder = tmp_path / "-".join(["run", *settings]).replace("/", "")
    return train_run(override(TINY, ["optim.epochs=1", *settings]), folder, build=build)["epochs"][0]["train_loss"]


def weights(folder, which="last"):
    return read_checkpoint(folder, which).weights


def test_auxiliary_loss_is_added(tmp_path):
    losses = [train_run(TINY, tmp_path / str(aux), build=lambda c, s, aux=aux: Linear(aux))["epochs"] for aux in (0, 5)]
    assert losses[1][0]["train_loss"] - losses[0][0]["train_loss"] == pytest.approx(5.0, abs=1e-4)


@pytest.mark.parametrize("accumulate", [2, 8])
def test_accumulated_micro_batches_are_one_batch(tmp_path, accumulate):
    one = train_run(TINY, tmp_path / "one", build=build_linear)
    many = train_run(override(TINY, [f"optim.accumulate={accumulate}"]), tmp_path / "many", build=build_linear)
    for a, b in zip(one["epochs"], many["epochs"], strict=True):
        assert b["train_loss"] == pytest.approx(a["train_loss"], rel=1e-5)
    # Adam turns rounding of a nearly zero gradient into a full step, so that single
    # weights may differ more.
    torch.testing.assert_close(
        weights(tmp_path / "one")["classifier.weight"],
        weights(tmp_path / "many")["classifier.weight"],
        rtol=1e-3,
        atol=1e-3,
    )


def test_clipping_bounds_the_step(tmp_path):
    # With SGD and no decay the weights move by at most lr · clip_norm in each of the 16 steps.
    settings = ["optim.optimizer=sgd", "optim.momentum=0", "optim.weight_decay=0", "optim.schedule=constant"]
    settings += ["optim.lr=0.5", "optim.epochs=1", "optim.clip_norm=0.01"]
    config = override(TINY, settings)
    train_run(config, tmp_path, build=build_linear)
    seed_everything(config.seed)
    start, end = Linear().state_dict(), weights(tmp_path)
    moved = sum((end[name] - value).square().sum() for name, value in start.items()).sqrt()
    assert 0.5 * 16 * 0.5 * 0.01 < moved <= 16 * 0.5 * 0.01 * (1 + 1e-4)


def test_label_smoothing_changes_the_loss_as_it_should(tmp_path):
    # At a vanishing rate logits stay the same, so the two losses can be computed by hand.
    frozen = ["optim.lr=1e-12", "optim.weight_decay=0"]
    plain, smooth = first_loss(tmp_path, *frozen), first_loss(tmp_path, *frozen, "optim.label_smoothing=0.3")
    seed_everything(TINY.seed)
    model, part = Linear(), load_splits(TINY.data).train
    images = [i for batch in EpochBatches(len(part), 64, TINY.seed) for i in batch]
    logp = model(torch.stack([part[i][0] for i in images])).log_softmax(dim=1)
    target = part.targets[images]
    expected = -logp.gather(1, target[:, None]).mean(), -logp.mean()
    assert plain == pytest.approx(expected[0].item(), rel=1e-5)
    assert smooth == pytest.approx((0.7 * expected[0] + 0.3 * expected[1]).item(), rel=1e-5)


def test_frozen_parts_stay_with_their_statistics(tmp_path):
    config = override(TINY, ["optim.freeze=backbone", "optim.epochs=1"])
    train_run(config, tmp_path)
    seed_everything(config.seed)
    start, end = build_model(config, load_splits(config.data)).state_dict(), weights(tmp_path)
    for name, value in start.items():
        assert torch.equal(value, end[name]) == name.startswith("backbone."), name


def test_the_head_learns_first(tmp_path):
    config = override(TINY, ["optim.head_epochs=1", "optim.head_parts=classifier", "optim.head_lr=0.03"])
    snapshots = {}
    original = Trainer.save_last

    def noting(trainer):
        original(trainer)
        snapshots[trainer.state.done] = {k: v.clone() for k, v in trainer.model.state_dict().items()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "save_last", noting)
        record = train_run(config, tmp_path)
    assert [row["epoch"] for row in record["epochs"]] == [1, 2, 3]
    assert record["epochs"][0]["lr"] == 0.03
    seed_everything(config.seed)
    start = build_model(config, load_splits(config.data)).state_dict()
    for name, value in start.items():
        assert torch.equal(value, snapshots[1][name]) != name.startswith("classifier."), name
        assert not torch.equal(snapshots[1][name], snapshots[3][name]), name


def test_averaged_weights_are_those_that_are_kept(tmp_path):
    config = override(TINY, ["optim.ema_decay=0.9", "optim.epochs=2"])
    seen = []
    original = Trainer._step

    def noting(trainer, *args):
        images = original(trainer, *args)
        seen.append(trainer.model.classifier.weight.detach().clone())
        return images

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_step", noting)
        train_run(config, tmp_path, build=build_linear)
    average = seen[0]
    for count, weight in enumerate(seen[1:], start=2):
        share = max(0.1, 1 / count)
        average = (1 - share) * average + share * weight
    torch.testing.assert_close(weights(tmp_path, "best")["classifier.weight"], average)
    assert torch.equal(read_checkpoint(tmp_path).state["learning"]["classifier.weight"], seen[-1])


def test_layout_changes_no_result(tmp_path):
    a, b = (
        train_run(override(TINY, [f"channels_last={on}", "optim.epochs=1"]), tmp_path / on) for on in ("true", "false")
    )
    # Convolutions round differently, and training amplifies it.
    assert a["epochs"][0]["train_loss"] == pytest.approx(b["epochs"][0]["train_loss"], rel=1e-3)


def test_fp16_needs_a_gpu(tmp_path):
    with pytest.raises(ValueError, match="expected a GPU for precision=fp16"):
        train_run(override(TINY, ["precision=fp16"]), tmp_path)


def test_synchronised_batchnorm_needs_gpus(tmp_path):
    with pytest.raises(ValueError, match="expected GPUs for sync_bn"):
        train_run(override(TINY, ["sync_bn=true"]), tmp_path)


def test_synchronised_batchnorm_keeps_the_activations_of_timm():
    model, x = timm.create_model("test_byobnet", num_classes=3).eval(), torch.rand(2, 3, 64, 64)
    expected = model(x)
    torch.testing.assert_close(trainer.convert_sync_batchnorm(model)(x), expected)


@pytest.mark.gpu
def test_fp16_trains_with_a_scaler(tmp_path):
    record = train_run(override(TINY, ["precision=fp16", "optim.epochs=1", "device=cuda"]), tmp_path)
    assert record["epochs"][0]["train_accuracy"] > 0.3
    assert read_checkpoint(tmp_path).state["precision"]["scale"] > 1


def test_deterministic_algorithms_for_the_run_only(tmp_path):
    seen = []

    def build(config, splits):
        seen.append(torch.are_deterministic_algorithms_enabled())
        return Linear()

    train_run(override(TINY, ["deterministic=true", "optim.epochs=1"]), tmp_path, build=build)
    assert seen == [True]
    assert not torch.are_deterministic_algorithms_enabled()


class Poison(nn.Module):
    """Return NaN for one image, recognised by its pixels."""

    def __init__(self, image):
        super().__init__()
        self.register_buffer("image", image)

    def forward(self, x):
        bad = (x == self.image).flatten(1).all(dim=1)
        return torch.where(bad[:, None, None, None], torch.nan, x)


def test_nan_names_batch_and_layer_and_leaves_a_record(tmp_path):
    part = load_splits(TINY.data).train

    def build(config, splits):
        model = Linear()
        model.reduce = nn.Sequential(nn.ReLU(), Poison(part[500][0]))
        return model

    with pytest.raises(
        FloatingPointError, match=r"got nan at epoch 1, step \d+; first not finite: layer 'reduce.1'"
    ) as e:
        train_run(override(TINY, ["data.batch_size=8"]), tmp_path, build=build)
    assert "(Poison), whose input and weights are finite" in str(e.value)
    batch = str(e.value).split("training images ")[1].split(";")[0].split(", ")
    assert "500" in batch
    assert len(batch) == 8
    record = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    assert record["status"] == "failed"
    assert "layer 'reduce.1'" in record["error"]
    assert "Traceback" in record["traceback"]


def test_nan_of_the_auxiliary_loss(tmp_path):
    with pytest.raises(FloatingPointError, match="first not finite: the loss"):
        train_run(TINY, tmp_path, build=lambda config, splits: Linear(float("nan")))


def test_diverged_weights_are_named(tmp_path):
    def build(config, splits):
        model = Linear()
        nn.init.constant_(model.classifier.weight, float("inf"))
        return model

    with pytest.raises(FloatingPointError, match=r"layer 'classifier' \(Linear\), whose weights are not finite"):
        train_run(TINY, tmp_path, build=build)


def test_the_model_is_compiled_if_asked(tmp_path, monkeypatch):
    compiled = []
    # The real compiler takes longer than all other tests together.
    monkeypatch.setattr(torch, "compile", lambda model, **options: compiled.append(type(model)) or model)
    config = override(TINY, ["optim.epochs=1", "compile=true"])
    train_run(config, tmp_path / "module", build=build_linear)
    train_run(config, tmp_path / "network")
    assert [kind.__name__ for kind in compiled] == ["Linear", "SmallCNN"]  # of a Network only the backbone


@pytest.mark.slow
def test_really_compiled_model_trains_like_the_plain_one(tmp_path):
    losses = [
        train_run(override(TINY, ["optim.epochs=1", f"compile={on}"]), tmp_path / on)["epochs"][0]["train_loss"]
        for on in ("true", "false")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
