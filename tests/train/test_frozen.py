"""Descriptors of frozen features and the classifier on them."""

import json

import pytest
import torch

from isice.models import create_model
from isice.train.frozen import frozen_baseline, frozen_vectors

from ..cli._invoke import invoke


def two_textures(n, seed):
    """Class 0: horizontal stripes; class 1: vertical ones; random phase, equal mean images."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 2
    wave = torch.sin(torch.arange(12) * 1.5 + 6.28 * torch.rand(n, 1, generator=generator))
    rows = wave[:, :, None].expand(n, 12, 12)
    images = torch.where(labels[:, None, None] == 0, rows, rows.mT)
    return (images + 0.1 * torch.randn(n, 12, 12, generator=generator))[:, None], labels


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return create_model("small_cnn", pooling="gap", num_classes=2, reduce=6, in_chans=1)


def test_second_order_descriptors_of_random_features_tell_textures_apart(network):
    accuracy = frozen_baseline(network, [two_textures(60, 0)], [two_textures(40, 1)], pooling="sice(sparsity=0.05)")
    assert accuracy["test"] > 0.8
    assert accuracy["train"] >= accuracy["test"] - 0.1


def test_vectors_are_those_of_the_head_and_the_network_is_left_alone(network):
    network.train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    images, labels = two_textures(6, 2)
    vectors, found = frozen_vectors(network, network.pooling, [(images[:4], labels[:4]), (images[4:], labels[4:])])
    assert network.training
    assert found.tolist() == labels.tolist()
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name]), name
    network.eval()
    with torch.no_grad():
        expected = network.pooling(network.forward_features(images))
    torch.testing.assert_close(torch.from_numpy(vectors), expected)


def test_a_head_that_needs_training_is_refused(network):
    with pytest.raises(ValueError, match="expected a pooling without parameters"):
        frozen_baseline(network, [], [], pooling="isice_mlp")


def test_no_data_is_refused(network):
    with pytest.raises(ValueError, match="at least one batch"):
        frozen_baseline(network, [], [])


def test_a_run_of_the_kind_frozen_sees_every_image_once_and_trains_only_the_classifier(tmp_path, monkeypatch):
    from isice.models.network import Network
    from isice.ops.graphical_lasso import solver

    seen, solved = [], []
    features, solve = Network.forward_features, solver.solve
    monkeypatch.setattr(
        Network, "forward_features", lambda self, x: (seen.append((len(x), self.training)), features(self, x))[1]
    )
    monkeypatch.setattr(
        "isice.ops.graphical_lasso.autograd.solve",
        lambda cov, *rest: (solved.append(len(cov)), solve(cov, *rest))[1],
    )
    small = ["data.name=digits", "data.root=none", "model.backbone=small_cnn", "model.pretrained=false", "device=cpu"]
    settings = [argument for setting in [*small, "model.reduce=6"] for argument in ("--set", setting)]
    arguments = ["run", "sice_frozen", "--limit", "method=sice", "--out", str(tmp_path)]
    output = invoke(*arguments, *settings)
    (record,) = (json.loads(path.read_text()) for path in tmp_path.glob("*/record.json"))
    assert record["kind"] == "frozen"
    assert record["accuracy"]["test"] > 0.5
    images = record["images"]["train"] + record["images"]["test"]
    assert sum(count for count, _ in seen) == sum(solved) == images
    assert not any(training for _, training in seen)
    assert f"{100 * record['accuracy']['test']:.1f}" in output
