"""Partial-correlation and other second-order representations for PyTorch.

Public names and submodules are imported on first use, so ``import isice`` is fast.
"""

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Network": "models",
    "Pooling": "pooling",
    "SPDPooling": "pooling",
    "attach": "models",
    "create_model": "models",
    "create_pooling": "pooling",
    "initialize": "models",
    "list_poolings": "pooling",
    "load_weights": "models",
    "register_pooling": "pooling",
}

if TYPE_CHECKING:
    from . import functional as functional
    from . import models as models
    from . import pooling as pooling
    from .models import Network as Network
    from .models import attach as attach
    from .models import create_model as create_model
    from .models import initialize as initialize
    from .models import load_weights as load_weights
    from .pooling import Pooling as Pooling
    from .pooling import SPDPooling as SPDPooling
    from .pooling import create_pooling as create_pooling
    from .pooling import list_poolings as list_poolings
    from .pooling import register_pooling as register_pooling

__all__ = [*_HOME, "__version__", "functional"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    if name in _submodules():
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module 'isice' has no attribute {name!r}; it has {', '.join(__dir__())}.")


def __dir__() -> list[str]:
    return sorted({*__all__, *_submodules()})


def _submodules() -> list[str]:
    return [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
