"""The table ``[augment]`` of a run's configuration."""

from dataclasses import dataclass, field

from ._checks import check_choice, check_number


@dataclass(frozen=True)
class AugmentConfig:
    """Random changes of training batches on the device, after the transform of ``data``.

    ``crop_scale`` is the smallest area of a random resized crop (1 is none), ``crop_ratio`` its
    largest aspect ratio. ``crop_size`` is the side of the training images as a share of
    ``data.image_size``, rounded to a multiple of 32 pixels. Crops enlarge objects; a share below
    one gives them about the size that they have in evaluation. Backbones of a fixed image size,
    such as ViT, refuse it. ``translate`` is the largest shift as a share of the side, ``rotate``
    the largest angle in degrees. ``policy`` is ``trivial`` (TrivialAugment) or ``rand``
    (RandAugment), both without equalization. ``color`` is the largest relative change of
    brightness, contrast and saturation, ``erase`` the probability of random erasing. ``mixup`` and
    ``cutmix`` are the α of their Beta distributions; if both are set, each step draws one of them.
    ``mix_prob`` is the share of steps that mix images.
    """

    crop_scale: float = 1.0
    crop_ratio: float = 4 / 3
    translate: float = 0.0
    rotate: float = 0.0
    policy: str = "none"
    color: float = 0.0
    erase: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
    mix_prob: float = 1.0
    # Hashed only if set, so that earlier runs keep their hash.
    crop_size: float = field(default=1.0, metadata={"hashed_if_set": True})

    def __post_init__(self) -> None:
        for name in ("crop_scale", "crop_size"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise ValueError(f"config: expected 0 < augment.{name} ≤ 1, got {getattr(self, name)}.")
        check_number("config", "augment.crop_ratio", self.crop_ratio, minimum=1.0)
        check_choice("config", "augment.policy", self.policy, ("none", "trivial", "rand"))
        for name in ("translate", "rotate", "color", "mixup", "cutmix"):
            check_number("config", f"augment.{name}", getattr(self, name))
        for name in ("erase", "mix_prob"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"config: expected 0 ≤ augment.{name} ≤ 1, got {getattr(self, name)}.")
