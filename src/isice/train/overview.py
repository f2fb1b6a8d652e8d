"""What a run trains, in a few lines: shown before the first epoch."""

from torch import nn

from ..config import RunConfig
from ..data import Splits


def overview(config: RunConfig, model: nn.Module, splits: Splits) -> list[tuple[str, str]]:
    """Return the facts that decide a run: weights, input, pooling, rate, images and classes."""
    info, optim = splits.info, config.optim
    normalisation = "none" if info.mean is None else f"mean {_numbers(info.mean)}, std {_numbers(info.std or ())}"
    images = ", ".join(f"{split} {count:,}" for split, count in splits.sizes.items())
    return [
        ("weights", _weights(config, model)),
        (
            "input",
            f"{info.image_size}×{info.image_size} px, transform {info.transform}, normalisation: {normalisation}",
        ),
        ("pooling", f"{config.model.pooling}, {config.model.reduce or 'all'} channels"),
        ("training", f"{optim.optimizer}, rate {optim.lr:g}, {optim.epochs} epochs, batch {config.data.batch_size}"),
        ("data", f"{config.data.name}: {images} images, {len(info.classes)} classes"),
    ]


def _weights(config: RunConfig, model: nn.Module) -> str:
    report, backbone = getattr(model, "load_report", None), config.model.backbone
    if report is not None:
        return f"{backbone}, {report.message.removeprefix('load_weights: ')}"
    return f"{backbone}, pretrained (ImageNet)" if config.model.pretrained else f"{backbone}, random"


def _numbers(values: tuple[float, ...]) -> str:
    return "(" + ", ".join(f"{value:g}" for value in values) + ")"
