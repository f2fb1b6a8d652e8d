"""Every layout becomes (B, C, H, W), position by position; final norm and weights are kept."""

import copy

import pytest
import timm
import torch
from torch import nn

from isice.models import PAPER_BACKBONES, Backbone, create_backbone


def timm_model(name, **kwargs):
    torch.manual_seed(0)
    return timm.create_model(name, num_classes=7, **kwargs).eval()


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("test_resnet", {}),
        ("test_byobnet", {}),
        ("test_efficientnet", {}),
        ("test_nfnet", {}),
        ("swin_tiny_patch4_window7_224", {"img_size": (64, 96)}),
        ("mixer_s32_224", {"img_size": 64}),
        ("test_vit4", {"img_size": (64, 96), "global_pool": "avg", "fc_norm": False}),
    ],
)
def test_average_of_the_map_gives_the_logits_of_the_untouched_network(name, kwargs):
    model = timm_model(name, **kwargs)
    size = kwargs.get("img_size", (64, 96))
    x = torch.rand(2, 3, *((size, size) if isinstance(size, int) else size))
    with torch.no_grad():
        features = Backbone(copy.deepcopy(model), img_size=x.shape[-2:])(x)
        logits = model.get_classifier()(features.mean(dim=(-2, -1)))
        torch.testing.assert_close(logits, model(x), rtol=1e-4, atol=1e-5)


def test_convnext_keeps_the_norm_of_its_head():
    model = timm_model("test_convnext")
    nn.init.normal_(model.head.norm.weight)
    x = torch.rand(2, 3, 64, 96)
    with torch.no_grad():
        before = model.forward_features(x).permute(0, 2, 3, 1)
        expected = nn.functional.layer_norm(
            before, before.shape[-1:], model.head.norm.weight, model.head.norm.bias, model.head.norm.eps
        )
        actual = Backbone(model)(x).permute(0, 2, 3, 1)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["test_vit", "test_vit3", "deit_tiny_distilled_patch16_224"])
def test_tokens_become_rows_and_columns_and_prefix_tokens_go(name):
    model = timm_model(name, img_size=(32, 64))
    x = torch.rand(1, 3, 32, 64)
    with torch.no_grad():
        tokens = model.forward_features(x)
        features = Backbone(model)(x)
    assert features.shape[-2:] == (2, 4)
    first = tokens.shape[1] - 8
    assert first == model.num_prefix_tokens > 0
    for row in range(2):
        for column in range(4):
            torch.testing.assert_close(features[0, :, row, column], tokens[0, first + 4 * row + column])


@pytest.mark.parametrize(
    ("name", "size", "shape"),
    [
        ("test_mambaout", (64, 96), (256, 2, 3)),
        ("mobilenetv3_small_050", (64, 96), (1024, 2, 3)),
        ("regnetx_002", (64, 96), (368, 2, 3)),
        ("densenet121", (64, 96), (1024, 2, 3)),
        ("efficientnet_b0", (64, 96), (1280, 2, 3)),
        ("swinv2_tiny_window8_256", (64, 64), (768, 2, 2)),
        ("coatnet_nano_rw_224", (64, 96), (512, 2, 3)),
        ("maxvit_rmlp_pico_rw_256", (64, 64), (256, 2, 2)),
        ("mobilevit_xxs", (64, 96), (320, 2, 3)),
        ("eva02_tiny_patch14_224", (28, 56), (192, 2, 4)),
        ("cait_xxs24_224", (32, 48), (192, 2, 3)),
        ("xcit_nano_12_p16_224", (32, 48), (128, 2, 3)),
        ("levit_128s", (224, 224), (384, 4, 4)),
        ("convit_tiny", (48, 48), (192, 3, 3)),
        ("efficientvit_b0", (64, 96), (128, 2, 3)),
        ("convmixer_768_32", (28, 42), (768, 4, 6)),
        ("volo_d1_224", (64, 64), (384, 4, 4)),
    ],
)
def test_shape_of_many_architectures(name, size, shape):
    with torch.no_grad():
        backbone = create_backbone(name, img_size=size).eval()
        assert tuple(backbone(torch.rand(2, 3, *size)).shape) == (2, *shape)
    assert backbone.out_channels == shape[0]


@pytest.mark.parametrize(
    "name",
    [
        "test_resnet",
        "test_convnext",
        "test_vit",
        "vgg11",
        "efficientvit_b0",
        "inception_next_atto",
        "volo_d1_224",
        "deit_tiny_distilled_patch16_224",
    ],
)
def test_every_parameter_takes_part(name):
    backbone = create_backbone(name, img_size=64)
    backbone(torch.rand(2, 3, 64, 64)).square().sum().backward()
    assert [key for key, parameter in backbone.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize("name", ["coat_tiny", "pit_ti_224", "crossvit_tiny_240"])
def test_a_network_without_a_map_is_an_error(name):
    with pytest.raises(ValueError, match=r"expected a backbone with a feature map \(B, C, H, W\), got"):
        create_backbone(name)


def test_vgg_ends_before_its_last_max_pool():
    model = timm_model("vgg11")
    x = torch.rand(1, 3, 64, 96)
    with torch.no_grad():
        pooled = model.features(x)
        features = Backbone(model)(x)
    assert tuple(features.shape) == (1, 512, 4, 6)
    torch.testing.assert_close(nn.functional.max_pool2d(features, 2), pooled)


def test_the_paper_s_names_are_timm_weights():
    assert list(PAPER_BACKBONES) == [
        "vgg16", "vgg19", "resnet50", "resnet101", "resnext101", "convnext_tiny", "swin_tiny", "swin_base",
    ]  # fmt: skip
    assert set(PAPER_BACKBONES.values()) <= set(timm.list_pretrained())


def test_probing_leaves_frozen_parts_and_statistics_alone():
    model = timm.create_model("test_resnet").train()
    model.bn1.eval()
    before = copy.deepcopy(model.state_dict())
    backbone = Backbone(model)
    assert backbone.model.training
    assert not backbone.model.bn1.training
    for key, value in backbone.model.state_dict().items():
        assert torch.equal(value, before[key])


def test_wrong_image_size_is_named():
    fixed = create_backbone("deit_tiny_patch16_224", img_size=32)
    with pytest.raises(
        ValueError, match=r"deit_tiny_patch16_224: expected images of 32×32 pixels, got 48×32; .*img_size=\(48, 32\)"
    ):
        fixed(torch.rand(1, 3, 48, 32))
    windowed = create_backbone("coatnet_nano_rw_224", img_size=64).eval()
    with pytest.raises(ValueError, match="expected images of a size that this backbone accepts, got 96×64"):
        windowed(torch.rand(1, 3, 96, 64))
    with pytest.raises(ValueError, match="got 40×40 pixels"):
        create_backbone("test_vit", img_size=40)
    with pytest.raises(ValueError, match="got 64×96 pixels"):
        create_backbone("swinv2_tiny_window8_256", img_size=(64, 96))


def test_only_a_wrong_size_is_reported_as_one():
    backbone = create_backbone("test_resnet", img_size=64).eval()
    broken = nn.Conv2d(5, 5, 1)
    backbone.model.layer2 = broken
    with pytest.raises(RuntimeError, match="to have 5 channels"):
        backbone(torch.rand(1, 3, 96, 96))
    fine = create_backbone("test_resnet").eval()
    with pytest.raises(RuntimeError, match="scalar type Double"):
        fine(torch.rand(1, 3, 96, 64, dtype=torch.float64))
    assert not fine.model.training


def test_a_network_of_flexible_size_takes_another_one():
    backbone = create_backbone("test_vit", img_size=32, dynamic_img_size=True)
    assert backbone(torch.rand(1, 3, 48, 32)).shape == (1, 64, 3, 2)


def test_errors_at_the_built_size_are_not_disguised():
    backbone = create_backbone("test_resnet", img_size=32)
    with pytest.raises(RuntimeError, match="type"):
        backbone(torch.rand(1, 3, 32, 32, dtype=torch.float64))


def test_wrong_images_are_named():
    backbone = create_backbone("test_resnet", in_chans=1)
    assert backbone(torch.rand(2, 1, 32, 32)).shape == (2, 96, 1, 1)
    with pytest.raises(ValueError, match=r"expected images \(B, 1, H, W\), got \(1, 3, 32, 32\)"):
        backbone(torch.rand(1, 3, 32, 32))
    with pytest.raises(TypeError, match="floating-point"):
        backbone(torch.zeros(1, 1, 32, 32, dtype=torch.uint8))
