import math

import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate
from torchvision.transforms.v2 import functional as V

from isice.config import AugmentConfig
from isice.data import augmentation
from isice.data.augmentation import Augmentation, change_colors, draw_parameters
from isice.data.transforms import IMAGENET_MEAN, IMAGENET_STD, Normalize

EVERYTHING = AugmentConfig(crop_scale=0.3, translate=0.1, rotate=10, policy="rand", color=0.3, erase=0.5, mixup=0.3)
KINDS = [
    AugmentConfig(crop_scale=0.3),
    AugmentConfig(translate=0.2),
    AugmentConfig(rotate=30.0),
    AugmentConfig(policy="trivial"),
    AugmentConfig(policy="rand"),
    AugmentConfig(color=0.4),
    AugmentConfig(erase=1.0),
    AugmentConfig(mixup=0.4),
    AugmentConfig(cutmix=1.0),
    EVERYTHING,
]


def pictures(batch=6, size=16, channels=3):
    return torch.rand(batch, channels, size, size, generator=torch.Generator().manual_seed(0))


def column(*values):
    return torch.tensor(values)[:, None, None, None]


@pytest.mark.parametrize("config", KINDS)
@pytest.mark.parametrize("channels", [1, 3])
def test_changes_images_as_a_function_of_the_seed(config, channels):
    normalize = Normalize((0.5,) * channels, (0.25,) * channels)
    augment, x, target = Augmentation(config, normalize), normalize(pictures(channels=channels)), torch.arange(6)
    first, again = (augment(x, target, seed=(0, 1, 2)) for _ in range(2))
    assert torch.equal(first.images, again.images)
    assert first.images.shape == x.shape
    assert first.images.isfinite().all()
    assert not torch.equal(first.images, x)
    assert not torch.equal(first.images, augment(x, target, seed=(0, 1, 3)).images)


def test_a_share_of_a_step_gets_the_draws_of_its_rows():
    config = AugmentConfig(crop_scale=0.3, policy="trivial", color=0.3, erase=0.5)
    augment, x = Augmentation(config), pictures()
    whole = augment(x, torch.arange(6), seed=(0, 1, 2)).images
    shares = [augment(x[i : i + 2], torch.arange(2), seed=(0, 1, 2), begin=i, total=6).images for i in (0, 2, 4)]
    torch.testing.assert_close(torch.cat(shares), whole)


def test_a_smaller_crop_size_resizes_every_image():
    x = pictures(3, size=64)
    resized = Augmentation(AugmentConfig(crop_size=0.5))(x, torch.arange(3), seed=(0, 1, 2)).images
    torch.testing.assert_close(resized, interpolate(x, scale_factor=0.5, mode="bilinear"))
    config = AugmentConfig(crop_scale=0.3, crop_size=0.5, color=0.3, erase=0.5, cutmix=1.0)
    assert Augmentation(config)(x, torch.arange(3), seed=(0, 1, 2)).images.shape == (3, 3, 32, 32)


def test_crops_against_torchvision(monkeypatch):
    """A crop is torchvision's crop and resize, but for its antialiasing."""
    height, width, boxes = 20, 30, [(0, 0, 10, 12), (5, 14, 14, 16), (6, 3, 8, 24)]
    sides = [
        (h / height, w / width, (2 * top + h) / height - 1, (2 * left + w) / width - 1) for top, left, h, w in boxes
    ]
    monkeypatch.setattr(augmentation, "_draw_crops", lambda *_: np.array(sides).T)
    x = pictures(3, size=width)[:, :, :height]
    ours = Augmentation(AugmentConfig(crop_scale=0.25))(x, torch.arange(3), seed=(0,)).images
    for i, box in enumerate(boxes):
        expected = V.resized_crop(x[i], *box, [height, width], antialias=False)
        # At the border of a crop grid_sample also sees the pixels beyond it.
        torch.testing.assert_close(ours[i, :, 3:-3, 3:-3], expected[:, 3:-3, 3:-3], rtol=1e-4, atol=1e-4)


def test_crops_stay_inside_and_have_the_asked_area():
    table = draw_parameters(AugmentConfig(crop_scale=0.25, crop_ratio=1.5), 5000, 1.0, np.random.default_rng(0))
    width, height = table["theta_0"], table["theta_4"]
    assert np.all(np.abs(table["theta_2"]) <= 1 - width + 1e-12)
    assert np.all(np.abs(table["theta_5"]) <= 1 - height + 1e-12)
    assert np.min(width * height) == pytest.approx(0.25, abs=0.02)
    assert np.mean(width * height) == pytest.approx(0.62, abs=0.03)
    assert np.max(width / height) == pytest.approx(1.5, abs=0.1)


@pytest.mark.parametrize(
    ("name", "value", "affine"),
    [
        ("rotate", 25.0, {"angle": -25.0}),
        ("rotate", -40.0, {"angle": 40.0}),
        ("translate_x", 0.2, {"translate": [-6.0, 0.0]}),
        ("translate_y", 0.2, {"translate": [0.0, -4.0]}),
        ("shear_x", 0.4, {"shear": [math.degrees(math.atan(0.4)), 0.0]}),
        ("shear_y", 0.4, {"shear": [0.0, math.degrees(math.atan(0.4))]}),
        ("shear_y", -0.3, {"shear": [0.0, -math.degrees(math.atan(0.3))]}),
    ],
)
def test_geometry_against_torchvision(name, value, affine, monkeypatch):
    """On a wide image, where pixels and relative coordinates have different angles."""

    def draw(policy, geometry, *_):
        geometry[name] += value

    monkeypatch.setattr(augmentation, "_draw_policy", draw)
    x = pictures(1, size=30)[:, :, 5:25]
    ours = Augmentation(AugmentConfig(policy="trivial"))(x, torch.arange(1), seed=(0,)).images
    unchanged = {"angle": 0.0, "translate": [0.0, 0.0], "scale": 1.0, "shear": [0.0, 0.0]}
    expected = V.affine(x, **unchanged | affine, interpolation=V.InterpolationMode.BILINEAR)
    torch.testing.assert_close(ours[..., 5:15, 8:22], expected[..., 5:15, 8:22], rtol=1e-3, atol=1e-3)


def test_ranges_of_shifts_and_rotations():
    table = draw_parameters(AugmentConfig(translate=0.2), 2000, 1.0, np.random.default_rng(0))
    for i in (2, 5):  # relative coordinates run from −1 to 1
        assert np.min(table[f"theta_{i}"]) == pytest.approx(-0.4, abs=0.01)
        assert np.max(table[f"theta_{i}"]) == pytest.approx(0.4, abs=0.01)
    table = draw_parameters(AugmentConfig(rotate=30.0), 2000, 1.0, np.random.default_rng(0))
    angles = np.rad2deg(np.arctan2(table["theta_3"], table["theta_0"]))
    assert (np.min(angles), np.max(angles)) == pytest.approx((-30.0, 30.0), abs=0.5)


@pytest.mark.parametrize(
    ("policy", "largest"),
    [
        (
            "trivial",
            {"shear_x": 0.99, "shear_y": 0.99, "translate_x": 32 / 224, "translate_y": 32 / 224, "rotate": 135},
        ),
        # Both operations of an image may be the same: twice the magnitude 9/30.
        ("rand", {"shear_x": 0.18, "shear_y": 0.18, "translate_x": 90 / 331, "translate_y": 90 / 331, "rotate": 18}),
    ],
)
def test_ranges_of_a_policy(policy, largest, monkeypatch):
    drawn = {}
    monkeypatch.setattr(augmentation, "_thetas", lambda geometry, *_: drawn.update(geometry) or {})
    draw_parameters(AugmentConfig(policy=policy), 20000, 1.0, np.random.default_rng(0))
    for name, value in largest.items():
        assert np.max(drawn[name]) == pytest.approx(value, rel=0.02)
        assert np.min(drawn[name]) == pytest.approx(-value, rel=0.02)


def test_colors_against_torchvision():
    x = pictures(2, size=12)
    one, none = column(1.0, 1.0), {"posterize": column(0.0, 0.0), "solarize": column(2.0, 2.0)}
    neutral = {"brightness": one, "contrast": one, "saturation": one, "sharpness": one, **none}
    neutral["autocontrast"] = column(0.0, 0.0)
    torch.testing.assert_close(change_colors(x, neutral), x)
    cases = {
        "brightness": (column(1.4, 0.3), lambda i, v: V.adjust_brightness(x[i], v)),
        "contrast": (column(1.8, 0.4), lambda i, v: V.adjust_contrast(x[i], v)),
        "saturation": (column(1.8, 0.4), lambda i, v: V.adjust_saturation(x[i], v)),
        "solarize": (column(0.5, 0.9), lambda i, v: V.solarize(x[i], v)),
        "autocontrast": (column(1.0, 1.0), lambda i, v: V.autocontrast(x[i])),
    }
    for name, (values, expected) in cases.items():
        ours = change_colors(x, neutral | {name: values})
        for i in range(2):
            torch.testing.assert_close(ours[i], expected(i, values[i].item()), rtol=1e-4, atol=2e-4, msg=name)
    sharp = change_colors(x, neutral | {"sharpness": column(1.9, 0.1)})[..., 1:-1, 1:-1]
    expected = torch.stack([V.adjust_sharpness(x[i], v) for i, v in enumerate((1.9, 0.1))])[..., 1:-1, 1:-1]
    torch.testing.assert_close(sharp, expected, rtol=1e-4, atol=1e-4)
    levels = change_colors(x, neutral | {"posterize": column(4.0, 0.0)})
    whole = V.posterize((x[0] * 255).round().to(torch.uint8), 4).float() / 255
    torch.testing.assert_close(levels[0], whole)
    torch.testing.assert_close(levels[1], x[1])


@pytest.mark.parametrize("bits", [1, 2, 4, 6])
def test_posterize_of_normalized_images_against_torchvision(bits, monkeypatch):
    """Levels are kept although the normalisation and its inverse round."""
    pixels = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).expand(1, 3, -1, -1)
    normalize = Normalize(IMAGENET_MEAN, IMAGENET_STD)

    def draw(*_):
        unchanged = {name: np.ones(1) for name in ("brightness", "contrast", "saturation", "sharpness")}
        return {**unchanged, "posterize": np.full(1, bits), "solarize": np.full(1, 2.0), "autocontrast": np.zeros(1)}

    monkeypatch.setattr(augmentation, "draw_parameters", draw)
    ours = Augmentation(AugmentConfig(policy="trivial"), normalize)(normalize(pixels), torch.zeros(1), seed=(0,))
    torch.testing.assert_close(ours.images, normalize(V.posterize(pixels, 8 - bits)), rtol=1e-4, atol=1e-5)


def test_colors_are_changed_before_the_normalisation():
    x, normalize = pictures(), Normalize(IMAGENET_MEAN, IMAGENET_STD)
    plain = Augmentation(AugmentConfig(color=0.4))(x, torch.arange(6), seed=(1,)).images
    normalized = Augmentation(AugmentConfig(color=0.4), normalize)(normalize(x), torch.arange(6), seed=(1,)).images
    torch.testing.assert_close(normalized, normalize(plain), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("setting", [{"color": 0.3}, {"policy": "rand"}])
def test_data_that_are_no_pictures_have_no_colours(setting):
    """The synthetic textures are not in [0, 1], to which changes of colours clamp."""
    with pytest.raises(ValueError, match=r"1 or 3 channels for augment.color and augment.policy, .*got 12 channels"):
        Augmentation(AugmentConfig(**setting))(pictures(channels=12), torch.arange(6), seed=(0,))


def test_erasing():
    x = torch.ones(400, 1, 32, 32)
    erased = Augmentation(AugmentConfig(erase=0.5))(x, torch.zeros(400), seed=(0,)).images == 0
    share = erased.flatten(1).float().mean(1)
    assert (share > 0).float().mean().item() == pytest.approx(0.5, abs=0.08)
    assert share.max() <= 0.36
    rows, columns = erased[share > 0][0, 0].any(1), erased[share > 0][0, 0].any(0)
    assert erased[share > 0][0, 0].sum() == rows.sum() * columns.sum()  # a rectangle


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_mixing_keeps_the_share_of_each_label(kind):
    x, target = torch.zeros(4, 1, 20, 20), torch.tensor([0, 1, 2, 3])
    x[:2] = 1.0  # the first two are mixed with the last two
    weights = []
    for seed in range(40):
        mixed = Augmentation(AugmentConfig(**{kind: 1.0}))(x, target, seed=(seed,))
        assert mixed.other.tolist() == [3, 2, 1, 0]
        assert mixed.images[0].mean().item() == pytest.approx(mixed.weight, abs=1e-5)
        assert mixed.images[3].mean().item() == pytest.approx(1 - mixed.weight, abs=1e-5)
        weights.append(mixed.weight)
    assert 0.2 < np.mean(weights) < 0.8
    assert np.std(weights) > 0.1


def test_share_of_mixed_steps():
    augment = Augmentation(AugmentConfig(mixup=1.0, cutmix=1.0, mix_prob=0.25))
    mixed = [augment(pictures(2, 4), torch.arange(2), seed=(seed,)).other is not None for seed in range(200)]
    assert np.mean(mixed) == pytest.approx(0.25, abs=0.08)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"crop_scale": 0.0}, r"0 < augment.crop_scale ≤ 1, got 0.0"),
        ({"crop_size": 1.5}, r"0 < augment.crop_size ≤ 1, got 1.5"),
        ({"crop_ratio": 0.5}, r"augment.crop_ratio ≥ 1.0, got 0.5"),
        ({"policy": "triv"}, "augment.policy to be one of"),
        ({"mixup": -1.0}, r"augment.mixup ≥ 0.0, got -1.0"),
        ({"erase": 1.5}, r"0 ≤ augment.erase ≤ 1, got 1.5"),
    ],
)
def test_errors(setting, message):
    with pytest.raises(ValueError, match=message):
        AugmentConfig(**setting)
