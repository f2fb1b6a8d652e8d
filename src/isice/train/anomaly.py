"""Locate the first layer whose output or weights are not finite."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook


@torch.no_grad()
def first_nonfinite(model: nn.Module, x: Tensor) -> str:
    """Run a forward pass and describe the first layer with a NaN or infinite output.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        >>> _ = nn.init.constant_(model[0].bias, float("nan"))
        >>> first_nonfinite(model, torch.zeros(1, 2))
        "layer '0' (Linear), whose weights are not finite"
    """
    if not torch.isfinite(x).all():
        return "the images of the batch"
    names, found = {module: name for name, module in model.named_modules() if name}, list[str]()

    def hook(module: nn.Module, _inputs: Any, output: Any) -> None:
        if not found and module in names and not all(torch.isfinite(t).all() for t in _tensors(output)):
            weights = all(torch.isfinite(t).all() for t in module.parameters(recurse=False))
            why = "whose input and weights are finite" if weights else "whose weights are not finite"
            found.append(f"layer {names[module]!r} ({type(module).__name__}), {why}")

    handle = register_module_forward_hook(hook)
    try:
        model(x)
    finally:
        handle.remove()
    return found[0] if found else "the loss: all layer outputs are finite, the auxiliary loss is not"


@torch.no_grad()
def first_nonfinite_weights(model: nn.Module) -> str | None:
    """Return the name of the first weight or buffer that is not finite, or None."""
    state = {name: value for name, value in model.state_dict().items() if value.is_floating_point()}
    if not state or all(torch.stack([value.isfinite().all() for value in state.values()]).tolist()):
        return None
    return next(name for name, value in state.items() if not value.isfinite().all())


def _tensors(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output]
    return [t for part in output for t in _tensors(part)] if isinstance(output, list | tuple) else []
