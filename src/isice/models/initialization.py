"""Data-driven start of a pooling: features of a few training batches, before the first step."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from .._checks import check_int
from .backbone import evaluating
from .network import Network


@torch.no_grad()
def initialize(model: Network, loader: Iterable[Any], *, images: int = 256) -> int:
    """Start a pooling from data: k-means centres, principal components, scales.

    Call it once, before the first training step; ``isice train`` does. Poolings without a
    data-driven start (:attr:`Pooling.wants_data`) leave ``loader`` untouched. The features are
    those of the first step: BatchNorm uses the statistics of the batch where it is in training
    mode, and its running statistics do not change; all other modules are in eval mode.

    Args:
        model: The network.
        loader: Batches of training images, alone or first in a tuple such as (images, labels).
        images: Number of images after which no more batches are read.

    Returns:
        Number of images used; 0 if the pooling needs none.

    Example:
        >>> from isice.models import create_model
        >>> model = create_model("small_cnn", pooling="netvlad(n_clusters=4)", num_classes=2)
        >>> initialize(model, [torch.rand(16, 3, 8, 8)])
        16
    """
    check_int("initialize", "images", images, minimum=1)
    if not isinstance(model, Network):
        raise TypeError(
            f"initialize: expected a Network, got {type(model).__name__}; call pooling.init_from(features)."
        )
    if not model.pooling.wants_data:
        return 0
    place = next(model.parameters())
    features, seen = list[Tensor](), 0
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.training]
    with evaluating(model), _batch_statistics(norms):
        for batch in loader:
            x = batch if isinstance(batch, Tensor) else batch[0]
            features.append(model.forward_features(x.to(place.device)).float())
            seen += len(x)
            if seen >= images:
                break
    if not features:
        raise ValueError("initialize: expected at least one batch of training images, got none; check the loader.")
    with torch.autocast(place.device.type, enabled=False):
        model.pooling.init_from(torch.cat(features))
    return seen


@contextmanager
def _batch_statistics(norms: Sequence[nn.Module]) -> Iterator[None]:
    """Let BatchNorm normalise by the batch, and restore its running statistics afterwards."""
    statistics = [{name: value.clone() for name, value in norm.named_buffers()} for norm in norms]
    for norm in norms:
        norm.train()
    try:
        yield
    finally:
        for norm, saved in zip(norms, statistics, strict=True):
            norm.load_state_dict(saved, strict=False)
