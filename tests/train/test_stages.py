"""Stages: which modules are trained when."""

import pytest
from torch import nn

from isice.config import OptimConfig
from isice.train.stages import plan_stages, set_trainable, set_training_mode


def model():
    parts = nn.Module()
    parts.backbone = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    parts.reduce = nn.Identity()
    parts.pooling = nn.Flatten()
    parts.classifier = nn.Linear(2, 2)
    return parts


def test_one_stage_by_default():
    (stage,) = plan_stages(model(), OptimConfig(epochs=5))
    assert (stage.first, stage.last, stage.frozen, stage.optim.epochs) == (1, 5, (), 5)


def test_the_first_stage_has_its_own_constant_rate():
    optim = OptimConfig(
        epochs=5, head_epochs=2, head_lr=0.5, freeze=("backbone.0",), warmup_epochs=1, schedule="cosine"
    )
    first, second = plan_stages(model(), optim)
    assert (first.optim.lr, first.optim.schedule, first.optim.warmup_epochs) == (0.5, "constant", 0)
    assert first.frozen == ("backbone", "backbone.0")
    assert (second.first, second.last, second.frozen, second.optim) == (3, 7, ("backbone.0",), optim)


def test_without_a_rate_of_its_own_the_first_stage_has_the_runs():
    assert plan_stages(model(), OptimConfig(lr=0.2, head_epochs=1))[0].optim.lr == 0.2


def test_unknown_module_is_an_error():
    with pytest.raises(ValueError, match=r"optim.freeze to name modules.*got 'backbon'. Did you mean 'backbone'"):
        plan_stages(model(), OptimConfig(freeze=("backbon",)))
    with pytest.raises(ValueError, match=r"optim.head_parts to name modules.*got 'clasifier'. Did you mean 'class"):
        plan_stages(model(), OptimConfig(head_epochs=1, head_parts=("clasifier",)))


def test_freezing_and_unfreezing():
    net = model()
    set_trainable(net, ("backbone",))
    assert {name.split(".")[0] for name, p in net.named_parameters() if p.requires_grad} == {"classifier"}
    set_training_mode(net, ("backbone",))
    assert not net.backbone[1].training
    assert net.classifier.training
    set_trainable(net, ())
    set_training_mode(net, ())
    assert all(p.requires_grad for p in net.parameters())
    assert all(module.training for module in net.modules())
