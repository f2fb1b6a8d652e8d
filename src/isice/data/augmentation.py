"""Random changes of batches on their device: crops, affine maps, colours, erasing, mixup, CutMix.

All parameters of a batch are drawn on the CPU, as one table with a row per image, and copied at
once. One call of ``grid_sample`` then does all geometric steps of all images together.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import affine_grid, avg_pool2d, grid_sample

from ..config import AugmentConfig
from .transforms import Normalize

# Largest changes of a policy: TrivialAugment's wide space, and RandAugment's at magnitude 1.
# Fractions, except degrees.
_SPACES = {
    "trivial": {"shear": 0.99, "translate": 32 / 224, "rotate": 135.0, "color": 0.99, "bits": 6},
    "rand": {"shear": 0.3, "translate": 150 / 331, "rotate": 30.0, "color": 0.9, "bits": 4},
}
_RAND_OPS, _RAND_MAGNITUDE = 2, 9 / 30
_OPS = (
    *("identity", "shear_x", "shear_y", "translate_x", "translate_y", "rotate"),
    *("brightness", "saturation", "contrast", "sharpness", "posterize", "solarize", "autocontrast"),
)
_COLORS = ("brightness", "contrast", "saturation", "sharpness", "posterize", "solarize", "autocontrast")
# Random erasing as published: the share of the area, and the largest aspect ratio.
_ERASE_AREA, _ERASE_RATIO = (0.02, 1 / 3), 3.3
# Weights of red, green and blue in grey (ITU-R 601-2), as in torchvision.
_GREY = (0.2989, 0.587, 0.114)

Array = NDArray[np.float64]


class Mixed(NamedTuple):
    """A batch whose images carry two labels.

    Attributes:
        images: The batch.
        target: First labels (B,).
        other: Second labels (B,); None where images are not mixed.
        weight: Weight of the first labels.
    """

    images: Tensor
    target: Tensor
    other: Tensor | None = None
    weight: float = 1.0


class Augmentation:
    """Random changes of a batch, a function of a seed and of the image's row.

    ``finish`` is the normalisation of the images; it is undone while colours are changed.

    Example:
        >>> augment = Augmentation(AugmentConfig(crop_scale=0.5, mixup=0.2))
        >>> augment(torch.rand(4, 3, 8, 8), torch.arange(4), seed=(0, 1, 2)).images.shape
        torch.Size([4, 3, 8, 8])
    """

    def __init__(self, config: AugmentConfig, finish: Callable[[Tensor], Tensor] | None = None) -> None:
        self.config = config
        mean, std = (finish.mean, finish.std) if isinstance(finish, Normalize) else ((0.0,), (1.0,))
        self._mean, self._std = (torch.tensor(values).view(-1, 1, 1) for values in (mean, std))

    def __call__(
        self, images: Tensor, target: Tensor, *, seed: tuple[int, ...], begin: int = 0, total: int | None = None
    ) -> Mixed:
        """Change float images (B, C, H, W), rows from ``begin`` on of the ``total`` in a step.

        The draws of an image do not depend on how processes and micro-batches divide a step.
        """
        total, rng = len(images) if total is None else total, np.random.default_rng(seed)
        height, width = images.shape[-2:]
        table = {
            key: values[begin : begin + len(images)]
            for key, values in draw_parameters(self.config, total, height / width, rng).items()
        }
        on_device = _to_device(table, images.device)
        if "theta_0" in table:
            theta = torch.stack([on_device[f"theta_{i}"].flatten() for i in range(6)], dim=1).view(-1, 2, 3)
            size = [*images.shape[:2], *(crop_side(side, self.config.crop_size) for side in (height, width))]
            grid = affine_grid(theta.to(images.dtype), size, align_corners=False)
            images = grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
        if any(name in table for name in _COLORS):
            if images.shape[1] not in (1, 3):
                raise ValueError(
                    f"train: expected images of 1 or 3 channels for augment.color and augment.policy, which change "
                    f"colours, got {images.shape[1]} channels; leave these settings out."
                )
            mean, std = self._mean.to(images.device), self._std.to(images.device)
            images = (change_colors((images * std + mean).clamp(0, 1), on_device) - mean) / std
        if "erase_top" in table:
            images = _erase(images, on_device)
        return self._mix(images, target, rng)

    def _mix(self, images: Tensor, target: Tensor, rng: np.random.Generator) -> Mixed:
        """Mix image i with image B − 1 − i, with one weight for the whole step."""
        kinds = [(kind, alpha) for kind in ("mixup", "cutmix") if (alpha := getattr(self.config, kind))]
        # Drawn always, so that the other draws of a step do not depend on these.
        chosen, applied = rng.integers(max(len(kinds), 1)), rng.uniform() < self.config.mix_prob
        if not kinds or not applied:
            return Mixed(images, target)
        kind, alpha = kinds[chosen]
        weight = float(rng.beta(alpha, alpha))
        if kind == "mixup":
            return Mixed(images.lerp(images.flip(0), 1.0 - weight), target, target.flip(0), weight)
        height, width = images.shape[-2:]
        top, bottom = _interval(rng.uniform(), np.sqrt(1.0 - weight), height)
        left, right = _interval(rng.uniform(), np.sqrt(1.0 - weight), width)
        mixed = images.clone()
        mixed[..., top:bottom, left:right] = images.flip(0)[..., top:bottom, left:right]
        kept = 1.0 - (bottom - top) * (right - left) / (height * width)
        return Mixed(mixed, target, target.flip(0), kept)


def crop_side(side: int, share: float) -> int:
    """Return the side of training images in pixels: a share of the side, a multiple of 32.

    Example:
        >>> crop_side(448, 6 / 7), crop_side(28, 0.5), crop_side(100, 1.0)
        (384, 28, 100)
    """
    return side if share == 1.0 else min(max(round(side * share / 32), 1) * 32, side)


def _interval(center: float, length: float, size: int) -> tuple[int, int]:
    """Return the pixels of an interval of relative centre and length, cut off at the border."""
    begin, end = (round((center + side * length / 2) * size) for side in (-1, 1))
    return max(begin, 0), min(end, size)


def draw_parameters(config: AugmentConfig, images: int, aspect: float, rng: np.random.Generator) -> dict[str, Array]:
    """Draw one value per image of every parameter that is needed; ``aspect`` is height over width.

    ``theta_0`` … ``theta_5`` are the rows of the affine map from output to input, in [−1, 1].
    """
    table: dict[str, Array] = {}
    geometry = {name: np.zeros(images) for name in ("shear_x", "shear_y", "translate_x", "translate_y", "rotate")}
    colors = {name: np.ones(images) for name in ("brightness", "contrast", "saturation", "sharpness")}
    extras = {"posterize": np.zeros(images), "solarize": np.full(images, 2.0), "autocontrast": np.zeros(images)}
    for axis in ("x", "y"):
        geometry[f"translate_{axis}"] += config.translate * rng.uniform(-1, 1, images)
    geometry["rotate"] += config.rotate * rng.uniform(-1, 1, images)
    for name in ("brightness", "contrast", "saturation"):
        colors[name] *= rng.uniform(max(0.0, 1 - config.color), 1 + config.color, images)
    if config.policy != "none":
        _draw_policy(config.policy, geometry, colors, extras, rng)
    crops = _draw_crops(config, images, rng)
    resized = min(config.crop_scale, config.crop_size) < 1.0
    if resized or config.translate or config.rotate or config.policy != "none":
        table |= _thetas(geometry, crops, aspect)
    changed = {"none": (), "trivial": _COLORS, "rand": _COLORS}[config.policy]
    changed = changed or (("brightness", "contrast", "saturation") if config.color else ())
    table |= {name: values for name, values in (colors | extras).items() if name in changed}
    return table | (_draw_boxes(config.erase, images, rng) if config.erase else {})


def _draw_policy(
    policy: str,
    geometry: dict[str, Array],
    colors: dict[str, Array],
    extras: dict[str, Array],
    rng: np.random.Generator,
) -> None:
    """Add one operation of random strength (TrivialAugment), or two of fixed (RandAugment)."""
    space, images = _SPACES[policy], len(geometry["rotate"])
    for _ in range(1 if policy == "trivial" else _RAND_OPS):
        drawn = np.array(_OPS)[rng.integers(len(_OPS), size=images)]
        strength = rng.uniform(size=images) if policy == "trivial" else np.full(images, _RAND_MAGNITUDE)
        sign = rng.choice([-1.0, 1.0], size=images)
        for name in geometry:
            largest = space[name.split("_")[0]]
            geometry[name] += np.where(drawn == name, sign * strength * largest, 0.0)
        for name in colors:
            colors[name] *= np.where(drawn == name, 1 + sign * strength * space["color"], 1.0)
        extras["posterize"] = np.where(drawn == "posterize", np.round(strength * space["bits"]), extras["posterize"])
        extras["solarize"] = np.where(drawn == "solarize", 1.0 - strength, extras["solarize"])
        extras["autocontrast"] = np.where(drawn == "autocontrast", 1.0, extras["autocontrast"])


def _draw_crops(config: AugmentConfig, images: int, rng: np.random.Generator) -> Array:
    """Draw random resized crops (4, images): relative height and width, centre in [−1, 1]."""
    area = rng.uniform(config.crop_scale, 1.0, images)
    largest = np.log(config.crop_ratio) if config.crop_scale < 1.0 else 0.0
    ratio = np.exp(rng.uniform(-1, 1, images) * largest)
    sides = np.minimum(np.stack([np.sqrt(area / ratio), np.sqrt(area * ratio)]), 1.0)
    return np.concatenate([sides, rng.uniform(-1, 1, (2, images)) * (1.0 - sides)])


def _thetas(geometry: dict[str, Array], crops: Array, aspect: float) -> dict[str, Array]:
    """Return affine maps: output → rotation and shear, in pixels → shift → crop → input."""
    angle = np.deg2rad(geometry["rotate"])
    cos, sin = np.cos(angle), np.sin(angle)
    shear_x, shear_y = geometry["shear_x"], geometry["shear_y"]
    a, b, c, d = cos - sin * shear_y, cos * shear_x - sin, sin + cos * shear_y, sin * shear_x + cos
    height, width, y, x = crops
    rows = (
        *(width * a, width * b * aspect, width * 2 * geometry["translate_x"] + x),
        *(height * c / aspect, height * d, height * 2 * geometry["translate_y"] + y),
    )
    return {f"theta_{i}": row for i, row in enumerate(rows)}


def _draw_boxes(probability: float, images: int, rng: np.random.Generator) -> dict[str, Array]:
    """Draw the relative top, left, bottom and right of erased rectangles; empty for none."""
    applied = rng.uniform(size=images) < probability
    area = rng.uniform(*_ERASE_AREA, images) * applied
    ratio = np.exp(rng.uniform(-1, 1, images) * np.log(_ERASE_RATIO))
    sides = np.minimum(np.stack([np.sqrt(area * ratio), np.sqrt(area / ratio)]), 1.0)
    top, left = rng.uniform(size=(2, images)) * (1.0 - sides)
    return {"erase_top": top, "erase_left": left, "erase_bottom": top + sides[0], "erase_right": left + sides[1]}


def _to_device(table: dict[str, Array], device: torch.device) -> dict[str, Tensor]:
    """Copy the table to the device at once, as float32 columns (B, 1, 1, 1)."""
    if not table:
        return {}
    columns = torch.from_numpy(np.stack(list(table.values())).astype(np.float32))
    columns = columns.pin_memory() if device.type == "cuda" else columns
    return dict(zip(table, columns.to(device, non_blocking=True)[..., None, None, None], strict=True))


def change_colors(x: Tensor, table: dict[str, Tensor]) -> Tensor:
    """Apply the colour parameters in ``table``, each (B, 1, 1, 1), to images in [0, 1]."""
    if "brightness" in table:
        x = (x * table["brightness"]).clamp_(0, 1)
        x = _grey(x).mean(dim=(-2, -1), keepdim=True).lerp(x, table["contrast"]).clamp_(0, 1)
        x = _grey(x).lerp(x, table["saturation"]).clamp_(0, 1)
    if "sharpness" not in table:
        return x
    # The kernel of torchvision: 1 around 5, which is nine times the mean of nine pixels and
    # four times the middle one.
    blurred = (9 * avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False) + 4 * x) / 13
    x = blurred.lerp(x, table["sharpness"]).clamp_(0, 1)
    # The rounding error of normalised pixels must not bring them below their own level.
    levels = torch.exp2(table["posterize"])
    x = torch.where(table["posterize"] > 0, ((255 * x).round() / levels).floor() * levels / 255, x)
    x = torch.where(x >= table["solarize"], 1 - x, x)
    low, high = x.amin(dim=(-2, -1), keepdim=True), x.amax(dim=(-2, -1), keepdim=True)
    stretched = (x - low) / torch.where(high > low, high - low, 1.0)
    return torch.where((table["autocontrast"] > 0) & (high > low), stretched, x)


def _grey(x: Tensor) -> Tensor:
    """Return grey images (B, C, H, W) of equal channels."""
    if x.shape[1] != 3:
        return x.mean(dim=1, keepdim=True).expand_as(x)
    red, green, blue = x.unbind(1)
    return (_GREY[0] * red + _GREY[1] * green + _GREY[2] * blue).unsqueeze(1).expand_as(x)


def _erase(images: Tensor, table: dict[str, Tensor]) -> Tensor:
    """Set each image's rectangle to zero, the mean colour after normalisation."""
    height, width = images.shape[-2:]
    y = ((torch.arange(height, device=images.device) + 0.5) / height)[:, None]
    x = (torch.arange(width, device=images.device) + 0.5) / width
    inside = (y >= table["erase_top"]) & (y < table["erase_bottom"])
    inside = inside & (x >= table["erase_left"]) & (x < table["erase_right"])
    return images.masked_fill(inside, 0.0)
