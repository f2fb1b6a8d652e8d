"""Networks: the paper's backbones with every layer, attach, compile, export, clear errors."""

import copy
import warnings

import pytest
import timm
import torch
from torch import nn

from isice.models import PAPER_BACKBONES, Network, attach, create_backbone, create_model
from isice.pooling import create_pooling, list_poolings


def small(pooling="gap", **kwargs):
    torch.manual_seed(0)
    options = {"num_classes": 3, "reduce": 6, "in_chans": 1, "widths": (4, 8), **kwargs}
    return create_model("small_cnn", pooling=pooling, **options)


SHAPES = {
    "vgg16": (64, (512, 4, 4)),
    "vgg19": (64, (512, 4, 4)),
    "resnet50": (64, (2048, 2, 2)),
    "resnet101": (64, (2048, 2, 2)),
    "resnext101": (64, (2048, 2, 2)),
    "convnext_tiny": (64, (768, 2, 2)),
    "swin_tiny": (448, (768, 14, 14)),
    "swin_base": (64, (1024, 2, 2)),
}


@pytest.mark.parametrize("name", PAPER_BACKBONES)
def test_the_paper_s_backbones_with_every_layer(name):
    size, shape = SHAPES[name]
    backbone = create_backbone(name, img_size=size).eval()
    features: list[torch.Tensor] = []
    with torch.no_grad():
        features.append(backbone(torch.rand(1, 3, size, size)))
        assert tuple(features[0].shape) == (1, *shape)
        backbone.forward = lambda x: features[0]  # the backbone is the slow part and the same for every layer
        for pooling in list_poolings():
            network = Network(backbone, pooling=pooling, num_classes=5, reduce=16).eval()
            logits, loss = network(torch.rand(1, 3, size, size), return_loss=True)
            assert logits.shape == (1, 5), pooling
            assert loss.shape == (), pooling
            assert logits.isfinite().all(), pooling


@pytest.mark.parametrize("pooling", list_poolings())
def test_every_layer_learns_through_the_whole_network(pooling):
    model = small(pooling).train()
    logits, loss = model(torch.rand(4, 1, 8, 8), return_loss=True)
    (nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2, 0])) + loss).backward()
    gradient = model.backbone[0][0].weight.grad
    assert gradient.isfinite().all()
    assert gradient.abs().sum() > 0
    model.eval()
    torch.testing.assert_close(model(torch.ones(2, 1, 8, 8)), model(torch.ones(2, 1, 8, 8), return_loss=True)[0])


def test_the_parts_follow_each_other():
    model = small("covariance").eval()
    x = torch.rand(2, 1, 8, 8)
    features = model.reduce(model.backbone(x))
    assert torch.equal(model.forward_features(x), features)
    vectors = model.forward_head(features, pre_logits=True)
    assert torch.equal(vectors, model.pooling(features))
    assert torch.equal(model.forward_head(features), model(x))
    torch.testing.assert_close(model(x), model.classifier(vectors))
    assert model.head_hidden_size == model.pooling.out_features == 21
    assert model.num_features == 6


def test_without_reduction_or_classifier():
    model = small(reduce=None, num_classes=0).eval()
    x = torch.rand(2, 1, 8, 8)
    torch.testing.assert_close(model(x), model.backbone(x).mean(dim=(-2, -1)))


@pytest.mark.parametrize(
    "model",
    [
        small("isice(n_iter=2)"),
        create_model("test_vit", pooling="gap", num_classes=3, reduce=None, img_size=(32, 48), drop_path_rate=0.1),
    ],
    ids=["small_cnn", "test_vit"],
)
def test_config_makes_the_network_again(model):
    again = create_model(**model.config)
    assert again.config == model.config
    again.load_state_dict(model.state_dict())
    x = torch.rand(2, model.backbone.in_chans, 32, 48)
    assert torch.equal(again.eval()(x), model.eval()(x))


def test_a_layer_made_by_hand_is_used_itself():
    layer = create_pooling("gap", 6)
    assert small(layer).pooling is layer


def test_attach_keeps_weights_and_classes():
    timm_model = timm.create_model("test_resnet", num_classes=5).eval()
    before = copy.deepcopy(timm_model)
    network = attach(timm_model, "gap", reduce=None).eval()
    assert network.num_classes == 5
    network.classifier.load_state_dict(before.fc.state_dict())
    x = torch.rand(2, 3, 64, 64)
    torch.testing.assert_close(network(x), before(x), rtol=1e-4, atol=1e-5)
    other = attach(network, "covariance", num_classes=4, reduce=8)
    assert other.backbone is network.backbone
    assert other(x).shape == (2, 4)


def test_attach_follows_dtype_and_mode():
    timm_model = timm.create_model("test_resnet", num_classes=5).double().eval()
    network = attach(timm_model, "covariance", reduce=8)
    assert not any(module.training for module in network.modules())
    assert network(torch.rand(1, 3, 64, 64, dtype=torch.float64)).dtype == torch.float64
    frozen = timm.create_model("test_resnet").train()
    frozen.bn1.eval()
    network = attach(frozen, "gap", reduce=8)
    assert network.training
    assert network.reduce.training
    assert not network.backbone.model.bn1.training


@pytest.mark.gpu
def test_attach_follows_the_device():
    network = attach(timm.create_model("test_resnet").cuda(), "isice", reduce=8)
    assert network(torch.rand(2, 3, 64, 64, device="cuda")).is_cuda


def test_paper_names_take_their_tag():
    model = create_model("resnet50", pooling="gap", num_classes=2, reduce=4, img_size=32)
    assert model.backbone.model.pretrained_cfg["tag"] == "tv_in1k"
    assert model.config["name"] == "resnet50"


def test_pretrained_weights_go_through_timm(monkeypatch):
    asked = []
    build = timm.create_model

    def download(name, pretrained, **kwargs):
        asked.append((name, pretrained))
        return build(name, pretrained=False, **kwargs)

    monkeypatch.setattr(timm, "create_model", download)
    create_model("convnext_tiny", pooling="gap", num_classes=2, reduce=4, pretrained=True, img_size=32)
    assert set(asked) == {("convnext_tiny.fb_in1k", True)}


def test_a_failed_download_says_what_to_do(monkeypatch):
    def fail(*args, **kwargs):
        raise ConnectionError("no route")

    monkeypatch.setattr(timm, "create_model", fail)
    with pytest.raises(OSError, match=r"resnet50\.tv_in1k.*no route.*checkpoint_path= .*pretrained=False"):
        create_model("resnet50", num_classes=2, pretrained=True)


def test_a_local_file_replaces_the_download(tmp_path, monkeypatch):
    torch.save(timm.create_model("test_resnet").state_dict(), tmp_path / "a.pth")
    model = create_model(
        "test_resnet", pooling="gap", num_classes=2, reduce=4, pretrained=True, checkpoint_path=tmp_path / "a.pth"
    )
    assert len(model.load_report.matched) == len(model.backbone.state_dict())
    assert create_model("test_resnet", pooling="gap", num_classes=2).load_report is None


@pytest.mark.parametrize(
    ("name", "kwargs", "error", "message"),
    [
        ("reset50", {}, ValueError, r"create_model: .* got 'reset50'\. Did you mean 'resnet50'\?"),
        ("resnet50.nope", {}, ValueError, r"create_model: expected one of resnet50\.a1_in1k.* got 'resnet50\.nope'"),
        (nn.ReLU(), {}, TypeError, r"create_model: expected a name, got ReLU; attach\(\)"),
        ("small_cnn", {"pooling": "isise"}, ValueError, "Did you mean 'isice'"),
        ("small_cnn", {"pooling": 3}, TypeError, "create_model: expected pooling to be a spec string"),
        ("small_cnn", {"reduce": 0}, ValueError, "create_model: expected reduce ≥ 1, got 0"),
        ("small_cnn", {"reduce": 2.5}, TypeError, r"create_model: expected reduce to be an integer, got 2\.5"),
        ("small_cnn", {"num_classes": -1}, ValueError, "create_model: expected num_classes ≥ 0, got -1"),
        ("small_cnn", {"pretrained": True}, ValueError, "expected pretrained=False for 'small_cnn'"),
        ("small_cnn", {"depth": 3}, TypeError, r"create_model: expected arguments of small_cnn.*\(depth\)"),
        ("small_cnn", {"widths": 5}, ValueError, "expected at least one block.*got widths=5"),
        ("identity", {"widths": (3,)}, TypeError, r"create_model: expected arguments of identity.*\(widths\)"),
        ("small_cnn", {"pooling": "low_rank_bilinear", "num_classes": 0}, ValueError, "num_classes ≥ 1, got 0"),
        ("small_cnn", {"in_chans": 0}, ValueError, "expected in_chans ≥ 1, got 0"),
        ("test_resnet", {"in_chans": 0}, ValueError, "create_model: expected in_chans ≥ 1, got 0"),
        ("test_resnet", {"img_size": "big"}, ValueError, r"expected img_size .*got 'big'"),
        ("test_resnet", {"colour": 1}, TypeError, "create_model: expected arguments of test_resnet.*colour"),
        ("small_cnn", {"checkpoint_path": "none.pth"}, FileNotFoundError, r"none\.pth"),
        ("small_cnn", {"pooling": create_pooling("gap", 5)}, ValueError, "for 6 channels, got one for 5"),
    ],
)
def test_create_model_errors(name, kwargs, error, message):
    options = {"pooling": "gap", "num_classes": 3, "reduce": 6, **kwargs}
    with pytest.raises(error, match=message):
        create_model(name, **options)


def test_attach_errors():
    with pytest.raises(ValueError, match=r"expected a backbone with a feature map \(B, C, H, W\), got a list"):
        attach(timm.create_model("test_resnet", features_only=True), num_classes=2)
    with pytest.raises(ValueError, match="attach: expected num_classes, got None and a model without a classifier"):
        attach(timm.create_model("test_resnet", num_classes=0))
    with pytest.raises(ValueError, match="attach: expected reduce ≥ 1, got -4"):
        attach(timm.create_model("test_resnet"), reduce=-4)


def test_autocast_gives_float32_logits():
    model = small("covariance").eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model.forward_features(torch.rand(2, 1, 8, 8)).dtype == torch.bfloat16
        assert model(torch.rand(2, 1, 8, 8)).dtype == torch.float32


def test_float64_network():
    assert small("covariance").double()(torch.rand(2, 1, 8, 8).double()).dtype == torch.float64


NETWORKS = {
    "small_cnn": lambda: (small("covariance"), (2, 1, 8, 8)),
    "tokens": lambda: (create_model("test_vit", pooling="gap", num_classes=3, reduce=4, img_size=32), (2, 3, 32, 32)),
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_compiles_in_one_graph(kind):
    model, shape = NETWORKS[kind]()
    model.eval()
    x = torch.rand(*shape)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)


def test_too_few_positions_are_a_warning_once():
    model = small("isqrt_cov").eval()
    with pytest.warns(UserWarning, match=r"got 2 × 2 = 4 positions and 6 channels.*reduce=4 or less"):
        model(torch.rand(1, 1, 2, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(torch.rand(1, 1, 2, 2))
        small("isqrt_cov")(torch.rand(2, 1, 8, 8))


@pytest.mark.parametrize(
    ("pooling", "warns"),
    [
        ("gap", False),
        ("covariance", False),
        ("dropcov", False),
        ("partial_correlation", False),
        ("partial_correlation(method='newton_schulz')", True),
        ("partial_correlation(ridge='oas', center=True)", False),
        ("spectral_map", False),
        ("sice", False),
        ("isice", True),
        ("isice(ridge=1.0)", False),
        ("isice_mlp", True),
        ("precision", True),
        ("log_euclidean", True),
        ("gap + 2 * precision", True),
        ("gap + partial_correlation", False),
    ],
)
def test_poolings_that_need_more_positions_than_channels_warn(pooling, warns):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        small(pooling)(torch.rand(2, 1, 2, 2))
    assert any("positions and 6 channels" in str(one.message) for one in caught) == warns


@pytest.mark.parametrize("pooling", ["gap", "isice"])
def test_gradients_per_sample(pooling):
    model, x, target = small(pooling).eval(), torch.rand(3, 1, 8, 8), torch.tensor([0, 1, 2])
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())

    def loss(parameters, image, label):
        logits = torch.func.functional_call(model, (parameters, buffers), (image[None],))
        return nn.functional.cross_entropy(logits, label[None])

    found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(parameters, x, target)
    for i in range(3):
        expected = torch.autograd.grad(loss(parameters, x[i], target[i]), list(parameters.values()))
        for name, gradient in zip(parameters, expected, strict=True):
            torch.testing.assert_close(found[name][i], gradient, rtol=1e-3, atol=1e-4 * float(gradient.abs().max()))
