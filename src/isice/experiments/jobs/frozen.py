"""A linear classifier on the descriptors of a frozen network: the paper's SICE baseline."""

from dataclasses import dataclass
from typing import Any, cast

from ...config import RunConfig
from ..job_configs import Job


@dataclass(frozen=True)
class FrozenConfig(RunConfig):
    """The network, the data and, as ``model.pooling``, the descriptor; ``optim`` is not used."""


def classify_frozen_features(config: RunConfig) -> dict[str, Any]:
    """Fit and evaluate a linear classifier on frozen features, without augmentation."""
    import torch

    from ...data import Split, load_splits
    from ...models import Network
    from ...train.frozen import frozen_baseline
    from ...train.launch import resolve_device
    from ...train.loaders import eval_loader
    from ...train.run import build_model

    splits, device = load_splits(config.data), resolve_device(config.device)
    torch.manual_seed(config.seed)
    network = cast(Network, build_model(config, splits))  # its classifier is not used
    plain = Split(splits.train.source, splits.test.transform, splits.train.indices.tolist())
    batches = [eval_loader(config, split, device) for split in (plain, splits.test)]
    accuracy = frozen_baseline(network, *batches, pooling=config.model.pooling, device=device)
    return {"accuracy": accuracy, "images": splits.sizes, "skipped_images": list(splits.skipped)}


JOB = Job(FrozenConfig, compute=classify_frozen_features)
