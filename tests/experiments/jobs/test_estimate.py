"""Estimates of runs from a few measured steps."""

import re

import pytest

from isice.config import RunConfig, override
from isice.experiments.jobs import _estimate
from isice.experiments.jobs._estimate import estimate_costs
from isice.experiments.jobs.frozen import FrozenConfig
from isice.models import create_model

from ...cli._invoke import invoke

TINY = override(RunConfig(), ["model.reduce=4", "model.pooling=gap", "device=cpu", "optim.epochs=5", "threads=1"])


@pytest.fixture
def two_seconds(monkeypatch):
    """Every measured step takes two seconds; return the measured networks."""
    measured, build = [], _estimate._step
    monkeypatch.setattr(_estimate, "_step", lambda c, b, d: (measured.append(c), build(c, b, d))[1])
    monkeypatch.setattr(_estimate, "median_seconds", lambda step, device, repeats: (step(), (2.0, repeats))[1])
    return measured


def test_steps_are_extrapolated_to_epochs_and_evaluations(two_seconds):
    (cost,) = estimate_costs([override(TINY, ["data.val_fraction=0.2", "data.batch_size=64"])])
    step = 2.0 * 64 / 4  # measured with four images on a CPU
    assert (cost.images, cost.step_seconds, cost.gib) == (1078, step, None)
    evaluated = step / 64 / 3
    assert cost.seconds == pytest.approx(5 * (16 * step + 269 * evaluated) + 450 * evaluated)


def test_memory_is_that_of_a_step_and_of_cached_images(two_seconds, monkeypatch):
    monkeypatch.setattr(_estimate, "peak_bytes", lambda step, device: 3 * 2**30)
    plain, cached = estimate_costs([TINY, override(TINY, ["data.cache=gpu", "data.image_size=512"])])
    assert plain.gib == 3
    assert cached.gib == pytest.approx(3 + (1347 + 450) * 512**2 / 2**30)


def test_evaluations_on_the_test_images_count_in_every_epoch(two_seconds):
    last, test = estimate_costs([override(TINY, [f"select_on={split}"]) for split in ("last", "test")])
    assert test.seconds - last.seconds == pytest.approx(5 * 450 * last.step_seconds / 64 / 3)


def test_training_images_may_be_smaller_than_those_of_evaluation(two_seconds):
    full, small = ["data.image_size=64"], ["data.image_size=64", "augment.crop_size=0.5"]
    costs = estimate_costs([override(TINY, full), override(TINY, small)])
    assert len(two_seconds) == 2, "another size is another measurement"
    # The same time for a quarter of the pixels: an evaluated image takes four times as long.
    extra = 3 * 450 * costs[0].step_seconds / 64 / 3
    assert costs[1].seconds - costs[0].seconds == pytest.approx(extra)


def test_a_frozen_network_costs_one_forward_pass(two_seconds):
    settings = {name: getattr(TINY, name) for name in ("model", "data", "optim", "device", "threads")}
    training, frozen, cropped = estimate_costs(
        [
            TINY,
            FrozenConfig(**settings),
            override(FrozenConfig(**settings), ["augment.crop_size=0.5", "data.image_size=64"]),
        ]
    )
    assert len(two_seconds) == 3, "a forward pass is another measurement than a step"
    assert frozen.seconds == pytest.approx((1347 + 450) * 2.0 / 4)
    assert frozen.seconds == cropped.seconds < training.seconds


def test_the_step_of_a_frozen_network_is_a_forward_pass(monkeypatch):
    networks = []
    monkeypatch.setattr(
        _estimate, "create_model", lambda *a, **k: networks.append(create_model(*a, **k)) or networks[-1]
    )
    estimate_costs([FrozenConfig(model=TINY.model, data=TINY.data, device="cpu", threads=1)])
    (network,) = networks
    assert not network.training
    assert all(parameter.grad is None for parameter in network.parameters())


def test_the_plan_says_what_the_time_of_a_frozen_network_leaves_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = ["device=cpu", "threads=1", "model.reduce=4", "model.backbone=small_cnn", "data.name=digits"]
    overrides = [part for text in (*settings, "model.pretrained=false") for part in ("--set", text)]
    output = invoke("run", "sice_frozen", "--only-cell", "0", "--estimate", *overrides)
    assert "fitting the classifier is not included" in output


def test_a_network_is_measured_once(two_seconds):
    seeds = [override(TINY, [f"seed={seed}", f"optim.epochs={seed + 1}"]) for seed in range(3)]
    costs = estimate_costs([*seeds, override(TINY, ["model.pooling=isqrt_cov"])])
    assert [config.model.pooling for config in two_seconds] == ["gap", "isqrt_cov"]
    assert costs[0].seconds < costs[1].seconds < costs[2].seconds


def test_sizes_of_the_table_of_datasets_count_without_files(two_seconds):
    settings = ["data.name=cub200", "data.image_size=8", "data.root=nowhere"]
    (cost,) = estimate_costs([override(TINY, settings)])
    assert cost.images == 5994
    (unknown,) = estimate_costs([override(TINY, ["data.name=folder", "data.image_size=8", "data.root=nowhere"])])
    assert (unknown.images, unknown.seconds) == (None, None)
    assert unknown.step_seconds is not None


def test_a_step_takes_longer_for_larger_images():
    small, large = estimate_costs([override(TINY, [f"data.image_size={size}"]) for size in (8, 96)])
    assert 0 < small.step_seconds < large.step_seconds


def test_the_plan_with_measured_times(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = [part for text in ("device=cpu", "threads=1", "model.reduce=4") for part in ("--set", text)]
    output = invoke("run", "digits", "--limit", "pooling=gap,isqrt_cov", "--estimate", *settings)
    assert re.search(r"gap\s+[0-9a-f]{12}\s+1,\d{3}\s+—\s+[\d.]+ (s|min)\s+run", output)
    assert re.search(r"2 to run, 0 finished; about [\d.]+ (s|min)", output)
    assert not (tmp_path / "runs").exists()
