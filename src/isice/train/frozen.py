"""The paper's SICE baseline: a linear classifier on descriptors of frozen features."""

from collections.abc import Iterable

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from ..models.backbone import evaluating
from ..models.network import Network
from ..pooling import Pooling, create_pooling


def frozen_baseline(
    model: Network,
    train: Iterable[tuple[Tensor, Tensor]],
    test: Iterable[tuple[Tensor, Tensor]],
    *,
    pooling: str = "sice",
    device: str | torch.device = "cpu",
) -> dict[str, float]:
    """Fit a linear classifier to descriptors of a network's frozen features; return its accuracies.

    ``train`` and ``test`` are batches of images and labels, without augmentation. The descriptor is
    ``pooling``, the spec of a pooling without parameters; that of the network is not used.
    """
    channels = model.pooling.in_channels
    layer = create_pooling(pooling, channels, num_classes=model.num_classes or None)
    if any(True for _ in layer.parameters()):
        raise ValueError(
            f"frozen_baseline: expected a pooling without parameters, got {layer!r}, which would stay "
            "untrained; train it end to end."
        )
    train_x, train_y = frozen_vectors(model, layer, train, device)
    test_x, test_y = frozen_vectors(model, layer, test, device)
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    classifier.fit(train_x, train_y)
    return {"train": classifier.score(train_x, train_y), "test": classifier.score(test_x, test_y)}


@torch.no_grad()
def frozen_vectors(
    model: Network, pooling: Pooling, batches: Iterable[tuple[Tensor, Tensor]], device: str | torch.device = "cpu"
) -> tuple[np.ndarray, np.ndarray]:
    """Return the descriptors (N, F), computed in eval mode, and the labels (N,) of all images."""
    model, pooling, vectors, labels = model.to(device), pooling.to(device).eval(), [], []
    with evaluating(model):
        for images, targets in batches:
            vectors.append(pooling(model.forward_features(images.to(device))).float().cpu())
            labels.append(torch.as_tensor(targets))
    if not vectors:
        raise ValueError("frozen_vectors: expected at least one batch, got none; check the data loader.")
    return torch.cat(vectors).numpy(), torch.cat(labels).numpy()
