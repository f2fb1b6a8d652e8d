"""Training stages: the head first, then the whole network."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from torch import nn

from .._checks import suggestion
from ..config import OptimConfig


@dataclass(frozen=True)
class Stage:
    """Consecutive epochs that train the same modules."""

    first: int  # epoch, counted from 1 over the whole run
    last: int
    optim: OptimConfig  # learning rate, schedule and epochs of this stage
    frozen: tuple[str, ...]  # names of the frozen modules


def plan_stages(model: nn.Module, optim: OptimConfig) -> list[Stage]:
    """Return one stage, or two if ``optim.head_epochs`` is set: first the head, then everything."""
    _check_names(model, "optim.freeze", optim.freeze)
    stages = []
    if optim.head_epochs:
        _check_names(model, "optim.head_parts", optim.head_parts)
        others = [name for name, _ in model.named_children() if name not in optim.head_parts]
        schedule = replace(
            optim,
            lr=optim.lr if optim.head_lr is None else optim.head_lr,
            epochs=optim.head_epochs,
            schedule="constant",
            warmup_epochs=0,
            patience=None,
        )
        stages.append(Stage(1, optim.head_epochs, schedule, tuple(dict.fromkeys([*others, *optim.freeze]))))
    done = optim.head_epochs
    stages.append(Stage(done + 1, done + optim.epochs, optim, optim.freeze))
    return stages


def set_trainable(model: nn.Module, frozen: Iterable[str]) -> None:
    """Require gradients of all parameters except those of the frozen modules."""
    model.requires_grad_(True)
    for name in frozen:
        model.get_submodule(name).requires_grad_(False)


def set_training_mode(model: nn.Module, frozen: Iterable[str]) -> None:
    """Set training mode; frozen modules stay in eval mode, which keeps BatchNorm statistics."""
    model.train()
    for name in frozen:
        model.get_submodule(name).eval()


def _check_names(model: nn.Module, setting: str, names: Iterable[str]) -> None:
    known = [name for name, _ in model.named_modules() if name]
    for name in names:
        if name not in known:
            raise ValueError(
                f"train: expected {setting} to name modules of the model, such as {known[0]!r}, got {name!r}."
                f"{suggestion(name, known)}"
            )
