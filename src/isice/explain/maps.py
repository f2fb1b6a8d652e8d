"""Heat maps on the picture: where the last feature maps are active, and where a class gets its score from."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from .._checks import check_choice
from ..models import Network

LAYERS = ("pooling", "backbone")
METHODS = ("centered", "hires_cam", "grad_cam")

# Below this part of the mean gradient, Grad-CAM's weights are rounding errors.
_NO_WEIGHT = 1e-4


def mean_maps(model: Network, images: Tensor, *, layer: str = "pooling") -> np.ndarray:
    """The mean over the channels of the last feature map, enlarged to the picture (paper, appendix).

    Args:
        model: The network.
        images: Images (B, in_chans, H, W), transformed as in training.
        layer: ``"pooling"``, the map that the head sees, or ``"backbone"``, the one before the reduction.

    Returns:
        Maps (B, H, W), in the units of the features.

    Example:
        >>> from isice import create_model
        >>> model = create_model("small_cnn", pooling="gap", num_classes=3, reduce=8)
        >>> mean_maps(model, torch.rand(2, 3, 16, 16)).shape
        (2, 16, 16)
    """
    check_choice("mean_maps", "layer", layer, LAYERS)
    check_network("mean_maps", model)
    with evaluation(model), torch.no_grad():
        images = images.to(next(model.parameters()))
        features = model.forward_features(images) if layer == "pooling" else model.backbone(images)
    return enlarge(features.float().mean(dim=1), images)


def class_maps(
    model: Network, images: Tensor, classes: Sequence[int] | None = None, *, method: str = "centered"
) -> tuple[np.ndarray, np.ndarray]:
    """Where the logit of a class comes from, by its gradient g at the feature map x that the pooling sees.

    Grad-CAM weights each channel by its mean gradient over the positions. A head made from a centred covariance does
    not see the mean of a channel, so that these weights are exactly zero and the map is empty: an error says so.
    HiResCAM, the product g·x summed over the channels at each position, exists for every head, but moves when a
    constant is added to a channel even if the head does not notice. The default takes the means out of what varies:
    ḡ·x + (g − ḡ)·(x − x̄), with means over the positions. It has the same sum over the picture, equals HiResCAM for
    average pooling, and does not move when the head does not.

    Args:
        model: The network.
        images: Images (B, in_chans, H, W), transformed as in training.
        classes: One class per image; by default the predicted ones.
        method: ``"centered"``, ``"hires_cam"`` (Draelos and Carin 2020) or ``"grad_cam"`` (Selvaraju et al. 2017).

    Returns:
        Maps (B, H, W), positive where the picture speaks for the class and negative where against it (Grad-CAM:
        never negative), and the classes (B,).

    Example:
        >>> from isice import create_model
        >>> model = create_model("small_cnn", pooling="isice", num_classes=3, reduce=8)
        >>> maps, classes = class_maps(model, torch.rand(2, 3, 16, 16), classes=[0, 2])
        >>> maps.shape, classes.tolist()
        ((2, 16, 16), [0, 2])
    """
    check_choice("class_maps", "method", method, METHODS)
    check_network("class_maps", model)
    with evaluation(model):
        images = images.to(next(model.parameters()))
        with torch.no_grad():
            features = model.forward_features(images)
        features = features.float().requires_grad_()
        logits = model.classifier(model.pooling(features))
        chosen = _chosen(logits, classes)
        score = logits.gather(1, chosen.unsqueeze(1)).sum()
        (gradient,) = torch.autograd.grad(score, features)
    return enlarge(_combine(gradient, features.detach(), method), images), chosen.cpu().numpy()


def _combine(gradient: Tensor, features: Tensor, method: str) -> Tensor:
    """The map (B, h, w) of a gradient and a feature map (B, C, h, w)."""
    weights = gradient.mean(dim=(2, 3), keepdim=True)
    if method == "hires_cam":
        return (gradient * features).sum(dim=1)
    if method == "centered":
        centred = features - features.mean(dim=(2, 3), keepdim=True)
        return (weights * features + (gradient - weights) * centred).sum(dim=1)
    if weights.abs().max() <= _NO_WEIGHT * gradient.abs().mean():
        raise ValueError(
            "class_maps: expected a head that sees the mean of a channel for method='grad_cam', got one that does not: "
            "all weights are zero; use method='centered'."
        )
    return (weights * features).sum(dim=1).relu()


def _chosen(logits: Tensor, classes: Sequence[int] | None) -> Tensor:
    if classes is None:
        return logits.argmax(dim=1)
    count, size = logits.shape
    if len(classes) != count or not all(0 <= int(number) < size for number in classes):
        raise ValueError(
            f"class_maps: expected {count} classes, one per image, each in 0 … {size - 1}, got {list(classes)}."
        )
    return torch.as_tensor([int(number) for number in classes], device=logits.device)


def check_network(who: str, model: nn.Module) -> None:
    """Raises unless ``model`` is a network with a classifier, whose parts can be looked into."""
    if not isinstance(model, Network):
        raise TypeError(f"{who}: expected an isice Network, got {type(model).__name__}; make one with attach().")
    if model.num_classes == 0:
        raise ValueError(f"{who}: expected a network with classes, got num_classes=0; create it with num_classes.")


@contextmanager
def evaluation(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; afterwards every part is in the mode it was in."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def enlarge(maps: Tensor, images: Tensor) -> np.ndarray:
    """Maps (..., h, w) at the size of the images (B, C, H, W), by bilinear interpolation."""
    size = tuple(images.shape[-2:])
    flat = maps.reshape(-1, 1, *maps.shape[-2:])
    return (
        interpolate(flat, size=size, mode="bilinear", align_corners=False)
        .reshape(*maps.shape[:-2], *size)
        .cpu()
        .numpy()
    )
