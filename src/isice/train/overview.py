"""What a run trains, in a few lines: shown before the first epoch."""

from torch import nn

from ..config import RunConfig
from ..data import Splits
from ..models.model_card import format_numbers


def overview(config: RunConfig, model: nn.Module, splits: Splits) -> list[tuple[str, str]]:
    """Return the facts that decide a run: weights, input, pooling, rate, images and classes."""
    info, optim = splits.info, config.optim
    normalisation = "none" if info.mean is None else f"mean {format_numbers(info.mean)}, std {format_numbers(info.std)}"
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
