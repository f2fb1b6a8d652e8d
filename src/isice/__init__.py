"""Partial-correlation and other second-order representations for PyTorch.

Public names and submodules are imported on first use, so ``import isice`` is fast.
"""

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "Network",
    "Pooling",
    "SPDPooling",
    "__version__",
    "attach",
    "create_model",
    "create_pooling",
    "functional",
    "initialize",
    "list_poolings",
    "load_weights",
    "register_pooling",
]

if TYPE_CHECKING:
    from . import functional
    from . import models as models
    from . import pooling as pooling
    from .models import Network, attach, create_model, initialize, load_weights
    from .pooling import Pooling, SPDPooling, create_pooling, list_poolings, register_pooling


def __getattr__(name: str) -> Any:
    if name in _submodules():
        return importlib.import_module(f".{name}", __name__)
    for part in ("pooling", "models") if name in __all__ else ():
        module = importlib.import_module(f".{part}", __name__)
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module 'isice' has no attribute {name!r}; it has {', '.join(__dir__())}.")


def __dir__() -> list[str]:
    return sorted({*__all__, *_submodules()})


def _submodules() -> list[str]:
    return [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
