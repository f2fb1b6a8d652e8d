"""Parameter groups and schedules."""

import math

import pytest
import torch
from timm.layers import DropPath
from torch import nn

from isice.config import ModelConfig, OptimConfig, override
from isice.data import load_splits
from isice.train.optim import create_optimizer, create_schedule, lr_factor
from isice.train.run import build_model

from ._tiny import TINY


def model() -> nn.Module:
    parts = nn.Module()
    parts.backbone = nn.Linear(2, 3)
    parts.classifier = nn.Linear(3, 4)
    return parts


def test_every_trainable_parameter_is_in_one_group():
    net = model()
    net.backbone.bias.requires_grad_(False)
    optimizer = create_optimizer(net, OptimConfig(lr=0.1, classifier_lr_factor=5.0, weight_decay=0.3))
    groups = {group["name"]: group for group in optimizer.param_groups}
    assert [p.shape for p in groups["network"]["params"]] == [net.backbone.weight.shape]
    assert len(groups["classifier"]["params"]) == 2
    assert groups["classifier"]["lr"] == pytest.approx(0.5)
    assert groups["network"]["weight_decay"] == 0.3


def test_layers_and_pooling_have_rates_of_their_own():
    net = nn.Module()
    net.backbone = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    net.reduce, net.classifier = nn.Linear(2, 2), nn.Linear(2, 2)
    net.pooling = nn.Module()
    net.pooling.log_ridge = nn.Parameter(torch.tensor(0.0))
    config = OptimConfig(lr=1.0, layer_decay=0.5, pooling_lr_factor=20.0, classifier_lr_factor=3.0)
    rates = {}
    for group in create_optimizer(net, config).param_groups:
        rates |= dict.fromkeys(group["params"], (group["lr"], group["weight_decay"]))
    assert len(rates) == len(list(net.parameters()))
    expected = {
        "backbone.0.weight": 0.25,
        "backbone.2.bias": 0.5,
        "reduce.weight": 1.0,
        "classifier.weight": 3.0,
        "pooling.log_ridge": 20.0,
    }
    for name, rate in expected.items():
        assert rates[net.get_parameter(name)][0] == pytest.approx(rate), name
    assert rates[net.pooling.log_ridge][1] == 0.0
    plain = create_optimizer(net, OptimConfig()).param_groups
    assert [(group["name"], len(group["params"])) for group in plain] == [("network", 7), ("classifier", 2)]


def test_nothing_to_train():
    with pytest.raises(ValueError, match="trainable parameters, got none"):
        create_optimizer(model().requires_grad_(False), OptimConfig())


def test_cosine():
    config = OptimConfig(schedule="cosine", epochs=11, warmup_epochs=1)
    assert lr_factor(config, 0.5) == 0.5
    assert lr_factor(config, 1) == 1.0
    assert lr_factor(config, 6) == pytest.approx(0.5)
    assert lr_factor(config, 11) == pytest.approx(0.0)
    assert lr_factor(config, 3.5) == pytest.approx(math.cos(math.pi / 8) ** 2)


def test_constant():
    assert {lr_factor(OptimConfig(schedule="constant"), epoch) for epoch in (0, 10, 49)} == {1.0}


def test_schedule_steps_all_groups():
    config = OptimConfig(lr=0.1, classifier_lr_factor=2.0, schedule="step", milestones=(1,), gamma=0.1)
    optimizer = create_optimizer(model(), config)
    schedule = create_schedule(optimizer, config, steps_per_epoch=2)
    rates = []
    for _ in range(3):
        rates.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        schedule.step()
    assert torch.tensor(rates).allclose(torch.tensor([[0.1, 0.2], [0.1, 0.2], [0.01, 0.02]]))


def test_warmup_starts_above_zero():
    config = OptimConfig(lr=1.0, schedule="constant", warmup_epochs=1)
    optimizer = create_optimizer(model(), config)
    schedule = create_schedule(optimizer, config, steps_per_epoch=4)
    rates = []
    for _ in range(5):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])


def test_the_classifier_can_have_its_own_decay():
    decays = {None: [0.3, 0.3], 0.0: [0.3, 0.0]}
    for own, expected in decays.items():
        config = OptimConfig(weight_decay=0.3, classifier_weight_decay=own)
        assert [group["weight_decay"] for group in create_optimizer(model(), config).param_groups] == expected


def test_sgd_has_its_momentum():
    optimizer = create_optimizer(model(), OptimConfig(optimizer="sgd", momentum=0.7, weight_decay=0.2))
    assert isinstance(optimizer, torch.optim.SGD)
    assert {(group["momentum"], group["weight_decay"]) for group in optimizer.param_groups} == {(0.7, 0.2)}


def test_a_head_that_gives_logits_is_the_classifier():
    net = model()
    net.pooling, net.classifier = net.classifier, nn.Identity()
    groups = create_optimizer(net, OptimConfig(lr=0.1, classifier_lr_factor=5.0)).param_groups
    assert {group["name"]: group["lr"] for group in groups} == {"network": 0.1, "classifier": 0.5}
    assert groups[1]["params"] == list(net.pooling.parameters())


def test_optimizers_of_timm_by_name():
    config = OptimConfig(optimizer="timm:lamb", lr=0.1, classifier_lr_factor=5.0)
    optimizer = create_optimizer(model(), config)
    assert type(optimizer).__name__ == "Lamb"
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.5]
    with pytest.raises(ValueError, match=r"expected one of timm's optimizers, got 'lam'\. Did you mean 'lamb'"):
        create_optimizer(model(), OptimConfig(optimizer="timm:lam"))
    with pytest.raises(ValueError, match="drop_path < 1, got 1"):
        ModelConfig(drop_path=1.0)


def test_stochastic_depth_reaches_the_backbone():
    splits = load_splits(TINY.data)
    for rate in (0.0, 0.3):
        settings = ["model.backbone=test_vit", f"model.drop_path={rate}", "model.img_size=32"]
        network = build_model(override(TINY, settings), splits)
        rates = [module.drop_prob for module in network.modules() if isinstance(module, DropPath)]
        assert max(rates, default=0.0) == pytest.approx(rate)
