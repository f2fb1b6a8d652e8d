"""Image transforms: prepare (deterministic) → augment (random) → finish (deterministic).

Prepared images can be cached, and a GPU can apply the later steps to a whole batch. Random numbers
come from torch's global CPU generator.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torchvision.transforms import v2

from .._checks import check_choice, check_int
from ..config import TRANSFORMS

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

# Central crop of the evaluation as a fraction of the shorter side: the usual 224 of 256.
_CENTER_CROP = 0.875


@dataclass(frozen=True)
class Transform:
    """A transform from decoded image to network input."""

    prepare: Callable[[Tensor], Tensor] | None  # deterministic steps on the decoded image; None for none
    augment: tuple[Callable[[Tensor], Tensor], ...]  # random steps, in order
    finish: Callable[[Tensor], Tensor] | None  # to float32 and normalised, an image or a batch; None for none

    @property
    def only_flips(self) -> bool:
        """Whether flips are the only random steps."""
        return all(isinstance(step, v2.RandomHorizontalFlip) for step in self.augment)

    def __call__(self, image: Tensor) -> Tensor:
        image = image if self.prepare is None else self.prepare(image)
        return self.augmented(image)

    def augmented(self, prepared: Tensor) -> Tensor:
        """Apply the steps after :attr:`prepare`."""
        for step in self.augment:
            prepared = step(prepared)
        return prepared if self.finish is None else self.finish(prepared)


def create_transforms(
    kind: str,
    size: int,
    *,
    mean: tuple[float, ...] | None = IMAGENET_MEAN,
    std: tuple[float, ...] | None = IMAGENET_STD,
    color_jitter: float = 0.0,
) -> tuple[Transform, Transform]:
    """Return the transforms for training and for evaluation.

    Args:
        kind: ``"none"`` resizes to size×size without keeping the aspect ratio, ``"paper"`` also
            flips at random, ``"center"`` resizes the shorter side to ``size``, takes the central
            square and flips, ``"crop"`` takes a random resized crop and flips, ``"randaugment"``
            adds RandAugment to ``"crop"``. Evaluation resizes, or crops the centre.
        size: Height and width of the result.
        mean, std: The normalisation per channel; both None for none.
        color_jitter: Strength of random brightness, contrast and saturation changes; 0 for none.

    Example:
        >>> train, evaluate = create_transforms("paper", 448)
        >>> evaluate(torch.zeros(3, 100, 80, dtype=torch.uint8)).shape
        torch.Size([3, 448, 448])
    """
    check_choice("data", "transform", kind, TRANSFORMS)
    check_int("data", "image_size", size, minimum=1)
    finish = Normalize(mean, std)
    jitter = (v2.ColorJitter(color_jitter, color_jitter, color_jitter),) if color_jitter else ()
    if kind in ("none", "paper", "center"):
        square = v2.Resize((size, size), antialias=True)
        if kind == "center":
            square = v2.Compose([v2.Resize(size, antialias=True), v2.CenterCrop(size)])
        flip = () if kind == "none" else (v2.RandomHorizontalFlip(),)
        return Transform(square, (*flip, *jitter), finish), Transform(square, (), finish)
    crop = (v2.RandomResizedCrop(size, antialias=True), v2.RandomHorizontalFlip())
    policy = (v2.RandAugment(),) if kind == "randaugment" else ()
    center = v2.Compose([v2.Resize(round(size / _CENTER_CROP), antialias=True), v2.CenterCrop(size)])
    return Transform(None, (*crop, *policy, *jitter), finish), Transform(center, (), finish)


class Normalize:
    """Convert an image or a batch to float32 in [0, 1], then normalise: (x − mean)/std per channel.

    The normalisation is in place, which is several times faster than a chain of transforms.
    Floating-point images are expected in [0, 1]. ``mean`` and ``std`` are both None for none.

    Example:
        >>> Normalize((0.5,), (0.25,))(torch.tensor([[[0, 255]]], dtype=torch.uint8))
        tensor([[[-2.,  2.]]])
    """

    def __init__(self, mean: tuple[float, ...] | None, std: tuple[float, ...] | None) -> None:
        if (mean is None) != (std is None):
            raise ValueError(f"data: expected mean and std together, got mean={mean}, std={std}.")
        if mean is not None and std is not None and (len(mean) != len(std) or min(std) <= 0):
            raise ValueError(f"data: expected as many positive std as mean values, got mean={mean}, std={std}.")
        self.mean, self.std = mean or (0.0,), std or (1.0,)
        self._constants: dict[tuple[torch.device, bool], tuple[Tensor, Tensor]] = {}

    def __call__(self, image: Tensor) -> Tensor:
        shift, factor = self._shift_and_factor(image.device, image.is_floating_point())
        return image.to(torch.float32, copy=True).sub_(shift).mul_(factor)

    def _shift_and_factor(self, device: torch.device, floating: bool) -> tuple[Tensor, Tensor]:
        if (device, floating) not in self._constants:
            mean, std = (torch.tensor(values, dtype=torch.float64).view(-1, 1, 1) for values in (self.mean, self.std))
            scale = 1.0 if floating else 255.0
            self._constants[device, floating] = (
                (mean * scale).float().to(device),
                (1 / (std * scale)).float().to(device),
            )
        return self._constants[device, floating]
