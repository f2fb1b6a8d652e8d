"""Mean descriptor of each class, as arrays that a report plots."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from ..pooling import Pooling

_MAX_SIDE = 256  # larger descriptors are not stored
_PICTURE_SIDE = 96
_MAX_CLASSES, _PER_CLASS = 10, 20


def example_indices(targets: Tensor) -> list[list[int]]:
    """Return the first twenty images of each of the first ten labels that have images."""
    found = [torch.nonzero(targets == label).flatten()[:_PER_CLASS].tolist() for label in range(_MAX_CLASSES)]
    return [members for members in found if members]


@torch.no_grad()
def class_descriptors(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    device: torch.device,
    *,
    classes: tuple[str, ...],
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> dict[str, np.ndarray]:
    """Compute the mean descriptor of classes, with one example image of each.

    The model is set to eval mode. ``batches`` are the images and labels of :func:`example_indices`,
    one batch per class; ``mean`` and ``std`` undo the normalisation of the examples.

    Returns:
        ``classes`` (K,), ``examples`` (K, H, W, C) with values in [0, 1] for display, and the
        descriptors if no side exceeds 256: ``matrices`` (K, D, D) if the pooling has a matrix,
        otherwise ``vectors`` (K, F).
    """
    model.eval()
    names, pictures, descriptors = [], [], []
    for images, labels in batches:
        names.append(classes[int(labels[0])])
        pictures.append(_example(images[0].cpu(), mean, std))
        descriptors.append(_descriptors(model, images.to(device)).float().mean(dim=0).cpu())
    arrays = {"classes": np.array(names), "examples": torch.stack(pictures).movedim(1, -1).numpy()}
    if max(descriptors[0].shape) <= _MAX_SIDE:
        key = "matrices" if descriptors[0].ndim == 2 else "vectors"
        arrays[key] = torch.stack(descriptors).numpy()
    return arrays


def _example(image: Tensor, mean: Sequence[float] | None, std: Sequence[float] | None) -> Tensor:
    """Return a small image in [0, 1], grey or RGB, from a normalised one."""
    if mean is not None and std is not None:
        image = image * image.new_tensor(std).view(-1, 1, 1) + image.new_tensor(mean).view(-1, 1, 1)
    if len(image) not in (1, 3):
        image = image.mean(dim=0, keepdim=True)
    if image.min() < -0.01 or image.max() > 1.01:
        image = (image - image.min()) / (image.max() - image.min())
    if max(image.shape[1:]) > _PICTURE_SIDE:
        image = interpolate(image[None], size=(_PICTURE_SIDE, _PICTURE_SIDE), mode="bilinear", antialias=True)[0]
    return image.clamp(0, 1)


def _descriptors(model: nn.Module, images: Tensor) -> Tensor:
    """Return the matrices (B, D, D) of the pooling, or its vectors (B, F) if it has none."""
    seen: list[Tensor] = []
    pooling = model.get_submodule("pooling")
    handle = pooling.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    try:
        model(images)
    finally:
        handle.remove()
    matrix = pooling.matrix(seen[0]) if isinstance(pooling, Pooling) else None
    return pooling(seen[0]) if matrix is None else matrix
