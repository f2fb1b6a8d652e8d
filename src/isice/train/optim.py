"""Optimizer, parameter groups and learning-rate schedules."""

import math
from typing import Any

import timm.optim
from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from .._checks import suggestion
from ..config import OptimConfig
from ..models.timm_interface import layer_numbers


def create_optimizer(model: nn.Module, config: OptimConfig) -> Optimizer:
    """Create an optimizer over the trainable parameters, with a parameter group for the classifier.

    The classifier is ``model.classifier``, or ``model.pooling`` if that returns the logits.
    """
    trainable = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if not trainable:
        raise ValueError("create_optimizer: expected a model with trainable parameters, got none; unfreeze some.")
    classifier = "classifier." if any(n.startswith("classifier.") for n, _ in model.named_parameters()) else "pooling."
    decay = config.weight_decay if config.classifier_weight_decay is None else config.classifier_weight_decay
    depths = layer_depths([name for name, _ in model.named_parameters()])
    groups: dict[tuple[str, float, float], list[nn.Parameter]] = {}
    for name, parameter in trainable:
        kind, lr, weight_decay = "network", config.lr * config.layer_decay ** depths.get(name, 0), config.weight_decay
        if name.startswith(classifier):
            kind, lr, weight_decay = "classifier", config.lr * config.classifier_lr_factor, decay
        elif name.startswith("pooling.") and config.pooling_lr_factor != 1.0:
            kind, lr = "pooling", config.lr * config.pooling_lr_factor
            # Scalars are logarithms of a gain or ridge: weight decay at this rate would pull the
            # value to one.
            weight_decay = weight_decay if parameter.ndim else 0.0
        groups.setdefault((kind, lr, weight_decay), []).append(parameter)
    # The groups of the network come first, in the order of its layers.
    ordered = sorted(groups.items(), key=lambda item: ("network", "pooling", "classifier").index(item[0][0]))
    param_groups: list[dict[str, Any]] = [
        {"name": kind, "lr": lr, "weight_decay": weight_decay, "params": parameters}
        for (kind, lr, weight_decay), parameters in ordered
    ]
    if config.optimizer == "sgd":
        return SGD(param_groups, lr=config.lr, momentum=config.momentum)
    if config.optimizer.startswith("timm:"):
        return _timm_optimizer(config, param_groups)
    return AdamW(param_groups, lr=config.lr)


def _timm_optimizer(config: OptimConfig, param_groups: list[dict[str, Any]]) -> Optimizer:
    name = config.optimizer.removeprefix("timm:")
    known = [str(one) for one in timm.optim.list_optimizers()]  # type: ignore[attr-defined]
    if name not in known:
        raise ValueError(f"create_optimizer: expected one of timm's optimizers, got {name!r}.{suggestion(name, known)}")
    optimizer: Optimizer = timm.optim.create_optimizer_v2(  # type: ignore[attr-defined]
        param_groups, opt=name, lr=config.lr, weight_decay=config.weight_decay, momentum=config.momentum
    )
    return optimizer


def layer_depths(names: list[str]) -> dict[str, int]:
    """Return the depth of every backbone parameter: 1 for its last layer, 2 below it, …

    Example:
        >>> layer_depths(["backbone.conv1.weight", "backbone.layer1.0.weight", "classifier.weight"])
        {'backbone.conv1.weight': 2, 'backbone.layer1.0.weight': 1}
    """
    layers = layer_numbers([name for name in names if name.startswith("backbone.")])
    return {name: max(layers.values()) + 1 - layer for name, layer in layers.items()}


def lr_factor(config: OptimConfig, epoch: float) -> float:
    """Return the factor of the learning rate at a fractional ``epoch``, counted from 0.

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
    """Create the schedule, stepped per optimizer step.

    With warm-up it runs one step ahead, so that the first rate is not zero.
    """
    return LambdaLR(optimizer, lambda step: lr_factor(config, (step + bool(config.warmup_epochs)) / steps_per_epoch))


def describe_schedule(config: OptimConfig) -> str | None:
    """Describe how a shortened run differs from its recipe; None if it has all epochs.

    Example:
        >>> describe_schedule(OptimConfig(epochs=32, recipe_epochs=50))
        "32 of the recipe's 50 epochs; the rate is 1.2e-06 from epoch 31 to the end"
    """
    if config.recipe_epochs is None:
        return None
    text = f"{config.epochs} of the recipe's {config.recipe_epochs} epochs"
    passed = [milestone for milestone in config.milestones if milestone < config.epochs]
    missed = [milestone for milestone in config.milestones if config.epochs <= milestone < config.recipe_epochs]
    if config.schedule != "step" or not passed:
        return text
    rate = config.lr * config.gamma ** len(passed)
    until = f"epoch {missed[0]} of the recipe" if missed else "the end"
    return f"{text}; the rate is {rate:.3g} from epoch {passed[-1] + 1} to {until}"
