"""What a trained head sees: its mean descriptor per class, as plain arrays for a report to draw."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from ..data import Split
from ..pooling import Pooling

# Nobody can look at more: descriptors of this side, pictures of this side, this many at a time.
_MAX_SIDE, _PICTURE_SIDE, _BATCH = 256, 64, 32


@torch.no_grad()
def class_descriptors(
    model: nn.Module,
    part: Split,
    device: torch.device,
    *,
    classes: tuple[str, ...],
    per_class: int = 20,
    max_classes: int = 10,
) -> dict[str, np.ndarray]:
    """Mean descriptor and mean picture of the first classes over the first ``per_class`` images of each in ``part``.

    Returns:
        ``classes`` (K,), ``images`` (K, H, W, C), and ``matrices`` (K, D, D) for a head that makes a matrix or
        ``vectors`` (K, F) for one that does not; neither, if it is larger than 256 a side. Classes without an image
        are left out.
    """
    model.eval()
    names, pictures, descriptors = [], [], []
    for label in range(min(len(classes), max_classes)):
        members = torch.nonzero(part.targets == label).flatten()[:per_class].tolist()
        if not members:
            continue
        images = torch.stack([part[index][0] for index in members])
        names.append(classes[label])
        pictures.append(_small(images.mean(dim=0)))
        found = [_descriptors(model, chunk.to(device)).float().cpu() for chunk in images.split(_BATCH)]
        descriptors.append(torch.cat(found).mean(dim=0))
    arrays = {"classes": np.array(names), "images": torch.stack(pictures).movedim(1, -1).numpy()}
    if max(descriptors[0].shape) <= _MAX_SIDE:
        key = "matrices" if descriptors[0].ndim == 2 else "vectors"
        arrays[key] = torch.stack(descriptors).numpy()
    return arrays


def _small(picture: Tensor) -> Tensor:
    if max(picture.shape[1:]) <= _PICTURE_SIDE:
        return picture
    return interpolate(picture[None], size=(_PICTURE_SIDE, _PICTURE_SIDE), mode="bilinear", antialias=True)[0]


def _descriptors(model: nn.Module, images: Tensor) -> Tensor:
    """The head's matrices (B, D, D) where it has them, else its vectors (B, F)."""
    seen: list[Tensor] = []
    pooling = model.get_submodule("pooling")
    handle = pooling.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    try:
        model(images)
    finally:
        handle.remove()
    matrix = pooling.matrix(seen[0]) if isinstance(pooling, Pooling) else None
    return pooling(seen[0]) if matrix is None else matrix
