"""Remove the head of a network, of timm, torchvision or any other, and take its feature map."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from timm.models.vgg import VGG
from timm.models.volo import VOLO
from torch import Tensor, nn

Extract = Callable[[Any, Tensor], Any]


def is_timm(model: Any) -> bool:
    """Return whether a module has the interface of a timm classification model."""
    return isinstance(model, nn.Module) and hasattr(model, "forward_features") and hasattr(model, "reset_classifier")


def is_torchvision(model: Any) -> bool:
    """Return whether a module is a classification model of torchvision."""
    module = type(model).__module__
    return module.startswith("torchvision.models.") and module.count(".") == 2


def drop_head(who: str, model: nn.Module) -> Extract:
    """Remove pooling and classifier in place; return the function that computes the features.

    Raises:
        TypeError: The classification model has no known feature map.
    """
    if is_timm(model):
        return _drop_timm_head(model)
    if not is_torchvision(model):
        return call
    family = type(model).__name__
    if family not in _TORCHVISION:
        raise TypeError(
            f"{who}: expected a torchvision model among {', '.join(sorted(_TORCHVISION))}, got {family}; "
            "pass a module that returns its feature map (B, C, H, W)."
        )
    if family == "VGG" and isinstance(model.features[-1], nn.MaxPool2d):  # type: ignore[index]
        model.features = model.features[:-1]  # type: ignore[index]
    if family == "ConvNeXt":
        model.classifier = model.classifier[:1]  # type: ignore[index]  # the final norm
    for name in ("fc", "head", "heads", *(() if family == "ConvNeXt" else ("classifier",))):
        if hasattr(model, name):
            setattr(model, name, nn.Identity())
    return _TORCHVISION[family]


def remove_bypassed_head(model: nn.Module) -> None:
    """Remove a timm head that is not called: DDP fails on parameters without gradients."""
    classifiers = (getattr(model, "pretrained_cfg", None) or {}).get("classifier") or ()
    for name in (classifiers,) if isinstance(classifiers, str) else classifiers:
        setattr(model, name.split(".")[0], nn.Identity())


def call(model: Any, x: Tensor) -> Any:
    """Return the output of the module itself."""
    return model(x)


def call_forward_features(model: Any, x: Tensor) -> Any:
    """Return timm's features before the head."""
    return model.forward_features(x)


def _drop_timm_head(model: nn.Module) -> Extract:
    if isinstance(model, VGG):
        if isinstance(model.features[-1], nn.MaxPool2d):
            model.features = model.features[:-1]
        model.pre_logits = nn.Identity()  # type: ignore[assignment]
    try:
        model.reset_classifier(0, "")  # type: ignore[operator]
    except (AssertionError, TypeError, ValueError):
        model.reset_classifier(0)  # type: ignore[operator]
        return call_forward_features  # the head always pools
    if isinstance(model, VOLO):
        # Its head adds the classes of all tokens, and its last blocks change the class token only.
        model.post_network, model.cls_token = None, None  # type: ignore[assignment]
        return call_forward_features
    return call


def is_map(out: Any) -> bool:
    """Return whether an output has positions: more than (B, C)."""
    return isinstance(out, Tensor) and out.ndim > 2


def to_map(who: str, model: nn.Module, out: Any, image_size: tuple[int, int]) -> Tensor:
    """Convert NCHW maps, NHWC maps and token sequences to (B, C, H, W)."""
    if isinstance(out, Tensor) and out.ndim == 4:
        nhwc = str(getattr(model, "output_fmt", "NCHW")).endswith("NHWC")
        return out.permute(0, 3, 1, 2) if nhwc else out
    if isinstance(out, Tensor) and out.ndim == 3 and (is_timm(model) or is_torchvision(model)):
        prefix = getattr(model, "num_prefix_tokens", None)
        if prefix is None:
            prefix = 0 if getattr(model, "cls_token", None) is None else 1
        grid = _grid(model, out.shape[1] - prefix, image_size)
        if grid is not None:
            tokens: Tensor = out[:, prefix:].transpose(1, 2)
            return torch.unflatten(tokens, 2, grid)
    got = f"an output of shape {tuple(out.shape)}" if isinstance(out, Tensor) else f"a {type(out).__name__}"
    raise ValueError(
        f"{who}: expected a backbone with a feature map (B, C, H, W), got {got}; second-order pooling needs "
        "positions: choose for example resnet50, convnext_tiny, swin_tiny or a plain ViT, or pass a module that "
        "returns a map."
    )


def _grid(model: nn.Module, n_tokens: int, image_size: tuple[int, int]) -> tuple[int, int] | None:
    """Infer the grid of a token sequence from the stride or the aspect ratio of the image."""
    height, width = image_size
    info = getattr(model, "feature_info", None)
    stride = info[-1].get("reduction", 0) if isinstance(info, list) and info else 0
    if stride:
        candidates = [(height // stride, width // stride), (math.ceil(height / stride), math.ceil(width / stride))]
    else:
        rows = max(1, round(math.sqrt(n_tokens * height / width)))
        candidates = [(rows, n_tokens // rows)]
    return next((grid for grid in candidates if grid[0] * grid[1] == n_tokens > 0), None)


def _call_children(names: tuple[str, ...], model: Any, x: Tensor) -> Tensor:
    for name in names:
        x = getattr(model, name)(x)
    return x


def _children(*names: str) -> Extract:
    return partial(_call_children, names)  # unlike a closure, it can be pickled


def _max_vit(model: Any, x: Tensor) -> Tensor:
    x = model.stem(x)
    for block in model.blocks:
        x = block(x)
    return x


def _dense_net(model: Any, x: Tensor) -> Tensor:
    return nn.functional.relu(model.features(x))


def _swin(model: Any, x: Tensor) -> Tensor:
    normed: Tensor = model.norm(model.features(x))
    return normed.permute(0, 3, 1, 2)


def _vision_transformer(model: Any, x: Tensor) -> Tensor:
    height, width = (side // model.patch_size for side in x.shape[-2:])
    tokens = model._process_input(x)
    tokens = model.encoder(torch.cat([model.class_token.expand(len(x), -1, -1), tokens], dim=1))[:, 1:]
    return torch.unflatten(tokens.transpose(1, 2), 2, (height, width))


_FEATURES = _children("features")
_TORCHVISION: dict[str, Extract] = {
    "AlexNet": _FEATURES,
    "ConvNeXt": _children("features", "classifier"),
    "DenseNet": _dense_net,
    "EfficientNet": _FEATURES,
    "MNASNet": _children("layers"),
    "MaxVit": _max_vit,
    "MobileNetV2": _FEATURES,
    "MobileNetV3": _FEATURES,
    "RegNet": _children("stem", "trunk_output"),
    "ResNet": _children("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4"),
    "ShuffleNetV2": _children("conv1", "maxpool", "stage2", "stage3", "stage4", "conv5"),
    "SqueezeNet": _FEATURES,
    "SwinTransformer": _swin,
    "VGG": _FEATURES,
    "VisionTransformer": _vision_transformer,
}
