"""The part of timm's model interface that concerns the backbone: data config, parameter groups."""

from collections.abc import Callable, Iterable
from typing import Any

from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.models._manipulate import group_with_matcher
from torch import nn

from .backbone import Backbone
from .identity import Identity
from .small_cnn import SmallCNN

_TIMM_INPUT = ("input_size", "mean", "std", "interpolation", "crop_pct", "crop_mode", "fixed_input_size")


class TimmInterface(nn.Module):
    """Methods of timm's models that a :class:`Network` derives from its backbone."""

    backbone: Backbone | SmallCNN | Identity
    num_classes: int
    about: dict[str, Any]

    @property
    def pretrained_cfg(self) -> dict[str, Any]:
        """Image size and normalisation, as ``timm.data.resolve_model_data_config`` reads them.

        A trained network has the input of its training, any other that of its backbone.
        """
        backbone = self.backbone
        cfg = {"architecture": backbone.name, "num_classes": self.num_classes, "classifier": "classifier"}
        images = self.about.get("input")
        return {**cfg, **(backbone_input(backbone) if images is None else _recorded_input(images, backbone.in_chans))}

    @property
    def default_cfg(self) -> dict[str, Any]:
        """Former name of :attr:`pretrained_cfg` in timm."""
        return self.pretrained_cfg

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute the backbone's activations in the backward pass, to save memory."""
        method = getattr(_network(self.backbone), "set_grad_checkpointing", None)
        if method is not None:
            method(enable)
        elif enable:
            raise ValueError(
                f"set_grad_checkpointing: expected a backbone that supports it, got {self.backbone.name}; "
                "use one of timm."
            )

    def no_weight_decay(self) -> set[str]:
        """Return the parameters of the backbone that timm excludes from weight decay."""
        method = getattr(_network(self.backbone), "no_weight_decay", None)
        return {f"backbone.model.{name}" for name in (method() if method is not None else ())}

    def group_matcher(self, coarse: bool = False) -> Callable[[str], tuple[float, ...]]:
        """Return a function from parameter names to layer numbers, for layer-wise learning rates.

        Layers of the backbone are grouped as in timm, by stages if ``coarse``; the head is last.
        """
        network = _network(self.backbone)
        prefix = "backbone.model." if isinstance(self.backbone, Backbone) else "backbone."
        names = [name for name, _ in network.named_parameters()]
        method = getattr(network, "group_matcher", None)
        if method is None:
            layers = layer_numbers(names)
        else:
            layers = group_with_matcher(((name, name) for name in names), method(coarse=coarse), reverse=True)
        head = max(layers.values(), default=-1) + 1
        numbers = {prefix + name: layer for name, layer in layers.items()}
        return lambda name: (numbers.get(name, head),)


def _network(backbone: nn.Module) -> nn.Module:
    """Return the network that a :class:`Backbone` wraps; the others are networks themselves."""
    return backbone.model if isinstance(backbone, Backbone) else backbone


def backbone_input(backbone: Backbone | SmallCNN | Identity) -> dict[str, Any]:
    """Return the image size and normalisation that a backbone was trained with, by timm's names.

    Without a config these are ImageNet's; :class:`SmallCNN` and :class:`Identity` have none.
    """
    if isinstance(backbone, SmallCNN | Identity):
        channels = backbone.in_chans
        return {"mean": (0.0,) * channels, "std": (1.0,) * channels}
    cfg = getattr(backbone.model, "pretrained_cfg", None) or {}
    found = {key: cfg[key] for key in _TIMM_INPUT if cfg.get(key) is not None}
    mean, std = found.get("mean", IMAGENET_DEFAULT_MEAN), found.get("std", IMAGENET_DEFAULT_STD)
    return {
        **found,
        "input_size": (backbone.in_chans, *backbone.built_for),
        "mean": _per_channel(mean, backbone.in_chans),
        "std": _per_channel(std, backbone.in_chans),
    }


def _recorded_input(images: dict[str, Any], channels: int) -> dict[str, Any]:
    """Translate ``about["input"]`` to timm's names."""
    size, crops = images["image_size"], images.get("transform") in ("crop", "randaugment")
    return {
        "input_size": (channels, size, size),
        "mean": tuple(images.get("mean") or (0.0,) * channels),
        "std": tuple(images.get("std") or (1.0,) * channels),
        "interpolation": "bilinear",
        "crop_pct": 0.875 if crops else 1.0,
        "crop_mode": "center" if crops else "squash",
    }


def _per_channel(values: Iterable[float], channels: int) -> tuple[float, ...]:
    """Return the values, or their mean for every channel if the images are not RGB."""
    values = tuple(values)
    return values if len(values) == channels else (sum(values) / len(values),) * channels


def layer_numbers(names: list[str]) -> dict[str, int]:
    """Return the number of the layer of every parameter, in order.

    A layer is a module name up to its first number (``features.28``, ``layer1.0``), or the module.
    """
    layers: dict[str, str] = {}
    for name in names:
        parts = name.split(".")
        numbered = [i for i, part in enumerate(parts) if part.isdigit()]
        layers[name] = ".".join(parts[: numbered[0] + 1] if numbered else parts[:-1])
    order = {layer: number for number, layer in enumerate(dict.fromkeys(layers.values()))}
    return {name: order[layer] for name, layer in layers.items()}
