"""The linear probe of the benchmarks: leave-one-out against explicit refits."""

import importlib
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from benchmarks import linear_probe
from safetensors.torch import save_file


@pytest.mark.parametrize("size", [5, 60])
@pytest.mark.parametrize("penalty", [0.01, 1.0])
def test_leave_one_out_equals_refits(size, penalty, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(40) % 4
    vectors = torch.randn(40, size, generator=generator) + 0.4 * torch.randn(4, size, generator=generator)[labels]
    held_out = torch.arange(40) >= 30
    monkeypatch.setattr(linear_probe, "PENALTIES", torch.tensor([penalty], dtype=torch.float64))
    found, right = linear_probe.probe(vectors, labels, held_out)
    x, y, val = vectors[:30].double(), labels[:30], vectors[30:].double()
    centred = x - x.mean(0)
    amount = penalty * centred.square().sum() / 30

    def scores(rows, at):
        mean, target = x[rows].mean(0), torch.nn.functional.one_hot(y[rows], 4).double()
        part = x[rows] - mean
        slope = torch.linalg.solve(part.T @ part + amount * torch.eye(size), part.T @ (target - target.mean(0)))
        return (at - mean) @ slope + target.mean(0)

    everything = torch.arange(30)
    assert torch.equal(right, scores(everything, val).argmax(1) == labels[30:])
    assert found["accuracy"] == pytest.approx(right.double().mean())
    right = [int(scores(everything[everything != i], x[i : i + 1]).argmax()) == int(y[i]) for i in range(30)]
    assert found["leave_one_out"] == pytest.approx(sum(right) / 30)
    assert 0.2 < found["leave_one_out"] < 1


def test_variants_change_the_features_or_the_start():
    generator = torch.Generator().manual_seed(0)
    x, held_out = torch.rand(6, 4, 5, 5, generator=generator), torch.arange(6) >= 3
    lengths = torch.rand(6, 1, 5, 5, generator=generator) + 0.5

    def vectors(group, features):
        return linear_probe.pooled(group, "netvlad(n_clusters=2)", features, held_out)[0]

    def means(group, features):
        return linear_probe.pooled(group, "gap", features, held_out)[0]

    torch.testing.assert_close(means(linear_probe.UNIT, lengths * x), means(linear_probe.UNIT, x))
    assert (means("baselines", lengths * x) - means("baselines", x)).abs().max() > 0.01
    torch.testing.assert_close(means(linear_probe.SQUARE_ROOT, x.square()), means("baselines", x))
    layer = linear_probe.create_pooling("netvlad(n_clusters=2)", 4)
    torch.testing.assert_close(vectors(linear_probe.RANDOM, x), layer(x).detach())
    assert (vectors("baselines", x) - layer(x)).abs().max() > 0.01


def test_the_network_is_the_one_of_the_file_and_absent_weights_are_an_error(tmp_path):
    model = timm.create_model("test_resnet").eval()
    weights = {key: value.half() for key, value in model.state_dict().items() if not key.startswith("fc.")}
    file = tmp_path / "weights.safetensors"
    save_file(weights, file)
    images = torch.rand(2, 3, 64, 64)
    model.load_state_dict({key: value.float() for key, value in weights.items()}, strict=False)
    torch.testing.assert_close(linear_probe.backbone("test_resnet", file)(images), model.forward_features(images))
    weights.pop("conv1.0.weight")
    save_file(weights, file)
    with pytest.raises(ValueError, match="got a file without conv1"):
        linear_probe.backbone("test_resnet", file)


def test_rows_are_compared_with_the_reference_which_comes_first():
    ours, others = torch.tensor([1, 1, 1, 0, 0]).bool(), torch.tensor([1, 0, 0, 1, 0]).bool()
    assert linear_probe.compared(ours, others) == {"images": 5, "wins": 2, "losses": 1}
    pairs = linear_probe.chosen(["ridge", "baselines"], ["gap"])
    assert pairs == [("baselines", linear_probe.REFERENCE), ("baselines", "gap")]
    assert len(linear_probe.chosen(["baselines"], None)) == len(linear_probe.GROUPS["baselines"])


@pytest.fixture
def generator(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "docs"))
    return importlib.import_module("generate_linear_probe")


def test_every_variant_is_named_and_left_out_of_the_summary(generator, monkeypatch):
    assert {linear_probe.UNIT, linear_probe.SQUARE_ROOT, linear_probe.RANDOM} == set(generator.VARIANTS)
    row = {"data": "cars", "network": "vgg16", "group": "ridge", "pooling": generator.DEFAULT, "seed": 0}
    rows = [row, *(row | {"group": group} for group in generator.VARIANTS)]
    monkeypatch.setattr(generator, "read_results", lambda _: {"rows": rows})
    assert generator._settings() == {("Stanford Cars", "VGG-16"): [row]}


def test_the_interval_of_a_difference_is_that_of_paired_images(generator):
    wins, losses, images = 60, 30, 1000
    paired = np.repeat([1.0, -1.0, 0.0], [wins, losses, images - wins - losses])
    margin = 196 * paired.std() / images**0.5
    row = {"wins": wins, "losses": losses, "images": images}
    expected = f"{100 * paired.mean():+.1f} ({3 - margin:+.1f} to {3 + margin:+.1f})"
    assert expected == "+3.0 (+1.1 to +4.9)"
    assert generator.difference([row]) == generator.difference([row, row]) == expected
    assert generator.difference([row | {"wins": 0, "losses": 0}]) == "—"
