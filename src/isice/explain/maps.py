"""Heat maps: mean activation of the last feature map, and class activation maps."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from .._checks import check_choice
from ..models import Network
from ..models.backbone import evaluating

METHODS = ("centered", "hires_cam", "grad_cam")

# Relative to the mean gradient; smaller Grad-CAM weights are rounding errors.
_NO_WEIGHT = 1e-4


def mean_maps(model: Network, images: Tensor) -> np.ndarray:
    """Return the channel mean of the pooling's input at the size of the image (paper, appendix).

    Args:
        model: The network.
        images: Images (B, in_chans, H, W), transformed as in training.

    Returns:
        Maps (B, H, W), in the units of the features.

    Example:
        >>> from isice import create_model
        >>> model = create_model("small_cnn", pooling="gap", num_classes=3, reduce=8)
        >>> mean_maps(model, torch.rand(2, 3, 16, 16)).shape
        (2, 16, 16)
    """
    check_network("mean_maps", model)
    with evaluating(model), torch.no_grad():
        images = images.to(next(model.parameters()))
        features = model.forward_features(images)
    return enlarge(features.float().mean(dim=1), images)


def class_maps(
    model: Network, images: Tensor, classes: Sequence[int] | None = None, *, method: str = "centered"
) -> tuple[np.ndarray, np.ndarray]:
    """Return class activation maps from the gradient g of a logit at the pooling's input x.

    Grad-CAM weights each channel by its mean gradient. A pooling of the centred covariance is
    invariant to the mean of a channel, so that these weights are zero and ``"grad_cam"`` raises.
    HiResCAM sums g·x over the channels at each position; it changes if a constant is added to a
    channel, even if the logit does not. ``"centered"`` is ḡ·x + (g − ḡ)·(x − x̄), with means over
    the positions. It has the same sum over the image, equals HiResCAM for average pooling, and is
    invariant where the logit is.

    Args:
        model: The network.
        images: Images (B, in_chans, H, W), transformed as in training.
        classes: One class per image; by default the predicted ones.
        method: ``"centered"``, ``"hires_cam"`` (Draelos and Carin 2020) or
            ``"grad_cam"`` (Selvaraju et al. 2017).

    Returns:
        Maps (B, H, W), positive where the image supports the class and negative where it opposes it
        (Grad-CAM: never negative), and the classes (B,).

    Example:
        >>> from isice import create_model
        >>> model = create_model("small_cnn", pooling="isice", num_classes=3, reduce=8)
        >>> maps, classes = class_maps(model, torch.rand(2, 3, 16, 16), classes=[0, 2])
        >>> maps.shape, classes.tolist()
        ((2, 16, 16), [0, 2])
    """
    check_choice("class_maps", "method", method, METHODS)
    check_network("class_maps", model)
    with evaluating(model):
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
    """Combine a gradient and a feature map (B, C, h, w) to a map (B, h, w)."""
    weights = gradient.mean(dim=(2, 3), keepdim=True)
    if method == "hires_cam":
        return (gradient * features).sum(dim=1)
    if method == "centered":
        centred = features - features.mean(dim=(2, 3), keepdim=True)
        return (weights * features + (gradient - weights) * centred).sum(dim=1)
    if weights.abs().max() <= _NO_WEIGHT * gradient.abs().mean():
        raise ValueError(
            "class_maps: expected a pooling that depends on channel means for method='grad_cam', got one that does "
            "not: all weights are zero; use method='centered'."
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
    """Raise unless ``model`` is a :class:`Network` with a classifier."""
    if not isinstance(model, Network):
        raise TypeError(f"{who}: expected an isice Network, got {type(model).__name__}; create one with attach().")
    if model.num_classes == 0:
        raise ValueError(f"{who}: expected a network with classes, got num_classes=0; create it with num_classes.")


def enlarge(maps: Tensor, images: Tensor) -> np.ndarray:
    """Resize maps (..., h, w) to the size of the images (B, C, H, W) by bilinear interpolation."""
    size = tuple(images.shape[-2:])
    flat = maps.reshape(-1, 1, *maps.shape[-2:])
    resized = interpolate(flat, size=size, mode="bilinear", align_corners=False)
    return resized.reshape(*maps.shape[:-2], *size).cpu().numpy()
