"""Data-driven start of a pooling: features of a few training batches, before the first step."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from .._checks import check_int, first_of
from .backbone import evaluating
from .network import Network


@torch.no_grad()
def initialize(model: Network, loader: Iterable[Any], *, images: int = 256) -> int:
    """Start a pooling from data: k-means centres, principal components, scales.

    Call it once, before the first training step; ``isice train`` does, with the first training
    batches and without the settings of ``augment``. Poolings without a data-driven start
    (:attr:`Pooling.wants_data`) leave ``loader`` untouched. Weights of the pooling that were loaded
    from a file are replaced. BatchNorm uses the statistics of the batch where it is in training
    mode, and its running statistics do not change; all other modules are in eval mode. With several
    processes, call it in rank 0 only, before SyncBatchNorm and DistributedDataParallel, which
    copies the weights of rank 0.

    Args:
        model: The network.
        loader: Batches of training images, alone or first in a tuple such as (images, labels).
            Shuffled, because only the first batches are read.
        images: Number of images to use, of as many batches as are needed.

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
            f"initialize: expected a Network, got {type(model).__name__}; pass the network before it is compiled or "
            "wrapped, or call init_from(features) of a pooling."
        )
    if not model.pooling.wants_data:
        return 0
    place = next(model.parameters())
    features, seen = list[Tensor](), 0
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.training]
    with evaluating(model), _batch_statistics(norms):
        for batch in loader:
            x = _images(batch)
            features.append(model.forward_features(x.to(place.device)).float())
            seen += len(x)
            if seen >= images:
                break
    if not features:
        raise ValueError("initialize: expected at least one batch of training images, got none; check the loader.")
    found = torch.cat(features)[:images]  # the same images for any size of batches
    if not found.isfinite().all():
        raise ValueError(
            f"initialize: expected finite features of {len(found)} training images, got NaN or infinity; check "
            "the images and the weights of the backbone."
        )
    with torch.autocast(place.device.type, enabled=False):
        model.pooling.init_from(found)
    return len(found)


def _images(batch: Any) -> Tensor:
    """Return the images of a batch: itself, or the first entry of a tuple or list."""
    x = batch[0] if isinstance(batch, tuple | list) and batch else batch
    if not isinstance(x, Tensor):
        raise TypeError(
            f"initialize: expected batches of images (B, C, H, W), alone or first in a tuple, got {_described(batch)}; "
            'pass a generator of the images, such as (batch["image"] for batch in loader).'
        )
    if x.numel() == 0:
        raise ValueError(
            f"initialize: expected at least one image in every batch, got {tuple(x.shape)}; check the loader."
        )
    return x


def _described(batch: Any) -> str:
    if isinstance(batch, Mapping):
        return f"a {type(batch).__name__} with the keys {first_of(map(str, batch))}"
    return f"a {type(batch).__name__}"


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
