"""The optimizer with its parameter groups, and the learning-rate schedules."""

import math
from typing import Any

from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from ..config import OptimConfig


def create_optimizer(model: nn.Module, config: OptimConfig) -> Optimizer:
    """AdamW or SGD over the trainable parameters; those of the classifier have their own rate and decay.

    The classifier is ``model.classifier``, or ``model.pooling`` where that gives the logits itself.

    Example:
        >>> model = nn.Sequential()
        >>> model.backbone, model.classifier = nn.Linear(2, 2), nn.Linear(2, 2)
        >>> groups = create_optimizer(model, OptimConfig(lr=0.1, classifier_lr_factor=5.0)).param_groups
        >>> [(group["name"], group["lr"]) for group in groups]
        [('network', 0.1), ('classifier', 0.5)]
    """
    trainable = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if not trainable:
        raise ValueError("create_optimizer: expected a model with trainable parameters, got none; unfreeze some.")
    names = [name for name, _ in model.named_parameters()]
    classifier = "classifier." if any(name.startswith("classifier.") for name in names) else "pooling."
    decay = config.weight_decay if config.classifier_weight_decay is None else config.classifier_weight_decay
    groups: list[dict[str, Any]] = [
        {"name": "network", "lr": config.lr, "weight_decay": config.weight_decay, "params": []},
        {"name": "classifier", "lr": config.lr * config.classifier_lr_factor, "weight_decay": decay, "params": []},
    ]
    for name, parameter in trainable:
        groups[name.startswith(classifier)]["params"].append(parameter)
    groups = [group for group in groups if group["params"]]
    if config.optimizer == "sgd":
        return SGD(groups, lr=config.lr, momentum=config.momentum)
    return AdamW(groups, lr=config.lr)


def lr_factor(config: OptimConfig, epoch: float) -> float:
    """The factor on every learning rate at ``epoch``, which may be fractional (0 is the start).

    Example:
        >>> config = OptimConfig(schedule="step", milestones=(15, 30), gamma=0.1)
        >>> [round(lr_factor(config, epoch), 3) for epoch in (0, 14.9, 15, 30)]
        [1.0, 1.0, 0.1, 0.01]
    """
    if epoch < config.warmup_epochs:
        return epoch / config.warmup_epochs
    if config.schedule == "step":
        return config.gamma ** sum(epoch >= milestone for milestone in config.milestones)
    if config.schedule == "cosine":
        progress = (epoch - config.warmup_epochs) / max(config.epochs - config.warmup_epochs, 1e-9)
        return 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0)))
    return 1.0


def create_schedule(optimizer: Optimizer, config: OptimConfig, steps_per_epoch: int) -> LambdaLR:
    """The schedule, to be stepped after every optimizer step; warm-up starts from one step, not from zero."""
    return LambdaLR(optimizer, lambda step: lr_factor(config, (step + bool(config.warmup_epochs)) / steps_per_epoch))
