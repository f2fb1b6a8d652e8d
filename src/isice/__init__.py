"""Partial-correlation and other second-order representations for PyTorch.

The public names are loaded when they are first used, so ``import isice`` is quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Network": "isice.models",
    "Pooling": "isice.pooling",
    "SPDPooling": "isice.pooling",
    "attach": "isice.models",
    "create_model": "isice.models",
    "create_pooling": "isice.pooling",
    "functional": "isice.functional",
    "list_poolings": "isice.pooling",
    "load_weights": "isice.models",
    "register_pooling": "isice.pooling",
}

if TYPE_CHECKING:
    from . import functional as functional
    from .models import Network as Network
    from .models import attach as attach
    from .models import create_model as create_model
    from .models import load_weights as load_weights
    from .pooling import Pooling as Pooling
    from .pooling import SPDPooling as SPDPooling
    from .pooling import create_pooling as create_pooling
    from .pooling import list_poolings as list_poolings
    from .pooling import register_pooling as register_pooling

__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'isice' has no attribute {name!r}; it has {', '.join(sorted(_HOME))}.")
    module = importlib.import_module(_HOME[name])
    return module if name == "functional" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
