"""What users of timm expect of a model: classifier, data config, parameter groups, printing."""

import json
import pickle
import re
from pathlib import Path

import pytest
import timm
import torch
import torchvision
from timm.data import resolve_model_data_config
from timm.optim import create_optimizer_v2
from torch import nn

from isice.models import Network, attach, create_model

ROOT = Path(__file__).parents[2]


def small(pooling="covariance", **kwargs):
    options = {"num_classes": 3, "reduce": 6, "in_chans": 1, "widths": (4, 8), **kwargs}
    return create_model("small_cnn", pooling=pooling, **options)


def test_get_and_reset_classifier():
    model, x = small().double().eval(), torch.rand(2, 1, 8, 8, dtype=torch.float64)
    assert model.get_classifier() is model.classifier
    model.reset_classifier(5)
    assert model(x).shape == (2, 5)
    assert model.get_classifier().weight.dtype == torch.float64
    assert not model.classifier.training
    model.reset_classifier(0)
    assert torch.equal(model(x), model.forward_head(model.forward_features(x), pre_logits=True))
    model.reset_classifier(4, "gap")
    assert model.classifier.in_features == model.head_hidden_size == 6
    assert model.config["num_classes"] == 4


def test_reset_classifier_of_a_pooling_that_returns_logits():
    model = small("low_rank_bilinear")
    assert model.get_classifier() is model.pooling
    model.reset_classifier(7)
    assert model(torch.rand(2, 1, 8, 8)).shape == (2, 7)


@pytest.mark.parametrize(
    "name", ["test_vit", "test_resnet", "tf_efficientnet_lite0", "vit_tiny_patch16_224.augreg_in21k"]
)
def test_the_data_config_is_that_of_the_backbone(name):
    expected = resolve_model_data_config(timm.create_model(name))
    assert resolve_model_data_config(attach(timm.create_model(name), "gap", num_classes=2)) == expected


def test_the_data_config_follows_size_channels_and_training():
    model = create_model("test_vit", pooling="gap", num_classes=2, img_size=64)
    assert resolve_model_data_config(model)["input_size"] == (3, 64, 64)
    grey = resolve_model_data_config(create_model("test_resnet", pooling="gap", num_classes=2, in_chans=1))
    assert grey["input_size"][0] == len(grey["mean"]) == 1
    recorded = {"channels": 3, "image_size": 96, "transform": "paper", "mean": [0.1, 0.2, 0.3], "std": [1.0, 1.0, 1.0]}
    model.about["input"] = recorded
    config = resolve_model_data_config(model)
    assert config["input_size"] == (3, 96, 96)
    assert config["mean"] == (0.1, 0.2, 0.3)
    assert config["crop_mode"] == "squash"
    assert model.default_cfg == model.pretrained_cfg


def scales(model):
    """Return the learning-rate factor of every parameter in timm's optimizer."""
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1.0, layer_decay=0.65)
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {names[p]: (g["lr_scale"], g["weight_decay"]) for g in optimizer.param_groups for p in g["params"]}


@pytest.mark.parametrize("name", ["test_vit", "test_resnet"])
def test_layer_wise_rates_are_those_of_timm(name):
    own = scales(timm.create_model(name, num_classes=2))
    found = scales(create_model(name, pooling="isqrt_cov(learn_scale=True)", num_classes=2, reduce=8))
    backbone = {n.removeprefix("backbone.model."): v for n, v in found.items() if n.startswith("backbone.")}
    assert len({scale for scale, _ in backbone.values()}) > 3
    assert {n: decay for n, (_, decay) in backbone.items()} == {n: own[n][1] for n in backbone}
    # The head is one group above all layers of the backbone.
    assert {scale for n, (scale, _) in found.items() if not n.startswith("backbone.")} == {1.0}
    assert max(scale for scale, _ in backbone.values()) < 1.0
    layers = sorted({own[n][0] for n in backbone})
    assert [layers.index(own[n][0]) for n in backbone] == [
        sorted({scale for scale, _ in backbone.values()}).index(scale) for scale, _ in backbone.values()
    ]


def test_layer_wise_rates_of_other_backbones():
    resnet = scales(attach(torchvision.models.resnet18(num_classes=2), "gap"))
    assert resnet["backbone.model.conv1.weight"][0] < resnet["backbone.model.layer4.1.conv1.weight"][0] < 1.0
    assert len({scale for scale, _ in scales(small()).values()}) == 3


def test_no_weight_decay_names_parameters_of_the_network():
    model = create_model("test_vit", pooling="gap", num_classes=2)
    assert "backbone.model.pos_embed" in model.no_weight_decay()
    assert {"backbone.model.pos_embed"} <= {name for name, _ in model.named_parameters()}
    assert small().no_weight_decay() == set()


def test_gradient_checkpointing_reaches_the_backbone():
    model = create_model("test_resnet", pooling="gap", num_classes=2)
    model.set_grad_checkpointing()
    assert model.backbone.model.grad_checkpointing
    model.set_grad_checkpointing(False)
    assert not model.backbone.model.grad_checkpointing
    with pytest.raises(ValueError, match="set_grad_checkpointing: expected a backbone that supports it, got small_cnn"):
        small().set_grad_checkpointing()


def test_print_shows_the_modules_and_summary_four_lines():
    model = small("isice(n_iter=2)")
    text = repr(model)
    assert text.startswith("Network(\n  (backbone): SmallCNN(")
    assert "(classifier): Classifier(in_features=21, out_features=3, bias=True)" in text
    assert re.search(r"\(pooling\): isice\(.*n_iter=2", text)
    assert model.summary().splitlines() == [
        "backbone: small_cnn, 1 → 8 channels, 348 parameters",
        "reduce: 8 → 6 channels, 60 parameters",
        f"pooling: {model.pooling!r} → 21 features, 0 parameters",
        "classifier: 21 → 3 classes, 66 parameters",
    ]


TORCHVISION = {
    "resnet18": (512, 2), "vgg11": (512, 4), "convnext_tiny": (768, 2), "swin_t": (768, 2),
    "efficientnet_b0": (1280, 2),
    "mobilenet_v2": (1280, 2), "mobilenet_v3_small": (576, 2), "regnet_y_400mf": (440, 2), "densenet121": (1024, 2),
    "shufflenet_v2_x0_5": (1024, 2), "mnasnet0_5": (1280, 2), "squeezenet1_1": (512, 3),
}  # fmt: skip


@pytest.mark.parametrize("name", TORCHVISION)
def test_attach_takes_torchvision_models(name):
    model = torchvision.models.get_model(name, num_classes=5).eval()
    channels, side = TORCHVISION[name]
    network = attach(model, "gap", reduce=8)
    assert network.num_classes == 5
    assert network.backbone(torch.rand(1, 3, 64, 64)).shape == (1, channels, side, side)
    logits = network.train()(torch.rand(2, 3, 64, 64))
    logits.sum().backward()
    assert all(p.grad is not None for p in network.parameters())
    assert isinstance(pickle.loads(pickle.dumps(network)), Network)


def test_gap_on_a_torchvision_model_is_the_model():
    torch.manual_seed(0)
    model = torchvision.models.resnet18(num_classes=5).eval()
    x = torch.rand(2, 3, 64, 64)
    expected, head = model(x).detach(), model.fc.state_dict()
    network = attach(model, "gap", reduce=None)
    network.classifier.load_state_dict(head)
    torch.testing.assert_close(network(x), expected)


def test_attach_takes_torchvision_s_vit():
    model = torchvision.models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=1, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=4
    )
    network = attach(model, "covariance", reduce=None)
    assert network.num_classes == 4
    assert network.backbone(torch.rand(2, 3, 32, 32)).shape == (2, 16, 4, 4)
    with pytest.raises(ValueError, match="expected images of 32×32 pixels, got 64×64"):
        network(torch.rand(1, 3, 64, 64))


def test_attach_takes_any_module_that_returns_a_map():
    body = nn.Sequential(nn.Conv2d(4, 12, 3, stride=2), nn.ReLU())
    network = attach(body, "isqrt_cov", num_classes=3, reduce=None)
    assert network(torch.rand(2, 4, 16, 16)).shape == (2, 3)
    assert network.backbone.model is body
    with pytest.raises(ValueError, match=r"Network: expected a backbone of timm.*got Sequential"):
        network.config  # noqa: B018


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        ("resnet50", TypeError, "attach: expected a torch module, got str; make one with timm"),
        (nn.Sequential(nn.Flatten(), nn.LazyLinear(4)), ValueError, r"Sequential: expected a backbone with a feature"),
        (nn.Linear(5, 5), ValueError, r"Linear: expected a module that maps images \(1, 3, 224, 224\).*RuntimeError"),
        (torchvision.models.googlenet(init_weights=False), TypeError, "expected a torchvision model among .*GoogLeNet"),
    ],
    ids=["name", "vectors", "linear", "googlenet"],
)
def test_attach_explains_what_it_cannot_take(model, error, message):
    with pytest.raises(error, match=message):
        attach(model, "gap", num_classes=2)


def test_the_record_of_every_timm_family():
    rows = json.loads((ROOT / "benchmarks" / "results" / "timm_architectures.json").read_text())["rows"]
    by_status = {status: [row["name"] for row in rows if row["status"] == status] for status in ("trained", "refused")}
    assert len(by_status["trained"]) >= 70
    assert len(by_status["trained"]) + len(by_status["refused"]) == len(rows)  # none fails later
    assert any(name.startswith("volo") for name in by_status["trained"])
    text = (ROOT / "docs" / "timm.md").read_text(encoding="utf-8")
    assert f"{len(by_status['trained'])} of {len(rows)} attach and train" in text
    assert all(f"`{name}`" in text for name in by_status["refused"])
