"""What a trained head sees: its mean descriptor per class, as plain arrays for a report to draw."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

# Larger descriptors are not kept: nobody can look at them, and a record should stay small.
_MAX_SIDE = 256


@torch.no_grad()
def class_descriptors(
    model: nn.Module, loader: DataLoader, device: torch.device, *, classes: tuple[str, ...], per_class: int = 20
) -> dict[str, np.ndarray]:
    """Mean descriptor and mean picture of every class over the first ``per_class`` images of it in ``loader``.

    Returns:
        ``classes`` (K,), ``images`` (K, H, W, C), and ``matrices`` (K, D, D) for a head that makes a matrix or
        ``vectors`` (K, F) for one that does not; neither, if it is larger than 256 a side.
    """
    images, targets = _first_images(loader, len(classes), per_class)
    labels = torch.arange(len(classes))
    found = {
        "classes": np.array(classes),
        "images": _class_means(images, targets, labels).movedim(1, -1).numpy(),
    }
    descriptor = _descriptors(model.eval(), images.to(device)).float().cpu()
    if max(descriptor.shape[1:]) <= _MAX_SIDE:
        key = "matrices" if descriptor.ndim == 3 else "vectors"
        found[key] = _class_means(descriptor, targets, labels).numpy()
    return found


def _first_images(loader: DataLoader, n_classes: int, per_class: int) -> tuple[Tensor, Tensor]:
    images, targets = [], []
    missing = torch.full((n_classes,), per_class)
    for batch, labels in loader:
        for image, label in zip(batch, labels, strict=True):
            if missing[label] > 0:
                missing[label] -= 1
                images.append(image)
                targets.append(label)
        if not missing.any():
            break
    return torch.stack(images), torch.stack(targets)


def _descriptors(model: nn.Module, images: Tensor) -> Tensor:
    """The head's matrices (B, D, D) where it has them, else its vectors (B, F)."""
    seen: list[Tensor] = []
    pooling = model.get_submodule("pooling")
    handle = pooling.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    try:
        model(images)
    finally:
        handle.remove()
    return pooling.matrix(seen[0]) if hasattr(pooling, "matrix") else pooling(seen[0])  # type: ignore[operator]


def _class_means(values: Tensor, targets: Tensor, labels: Tensor) -> Tensor:
    return torch.stack([values[targets == label].mean(dim=0) for label in labels])
