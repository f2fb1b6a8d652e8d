"""The normalisation of the images follows the backbone."""

import dataclasses

import timm

from ..config import RunConfig
from ..data import dataset_info
from ..models import PAPER_BACKBONES


def follow_backbone_input(config: RunConfig) -> RunConfig:
    """Set ``data.mean`` and ``data.std``, where unset, to those of the backbone's training.

    A config whose dataset has the same normalisation, or none, is returned as it is.
    """
    data, info = config.data, dataset_info(config.data.name)
    if data.mean is not None or data.std is not None or info.mean is None or info.channels != 3:
        return config
    name = PAPER_BACKBONES.get(config.model.backbone, config.model.backbone)
    cfg = timm.models.get_pretrained_cfg(name) if timm.is_model(name) else None
    if cfg is None or (tuple(cfg.mean), tuple(cfg.std)) == (info.mean, info.std):
        return config
    return dataclasses.replace(config, data=dataclasses.replace(data, mean=tuple(cfg.mean), std=tuple(cfg.std)))
