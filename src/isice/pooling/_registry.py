"""Registry of pooling layers: each file of this folder defines one, named after the file."""

import importlib
import pkgutil
from typing import TypeVar

from .._checks import suggestion
from .._specs import parse_spec, split_sum
from ._base import Pooling
from ._concatenation import Concatenation

_POOLINGS: dict[str, type[Pooling]] = {}
PoolingClass = TypeVar("PoolingClass", bound=type[Pooling])


def register_pooling(cls: PoolingClass) -> PoolingClass:
    """Register a pooling layer under the name of the file that defines it (class decorator)."""
    cls.name = cls.__module__.rsplit(".", 1)[-1]
    known = _POOLINGS.get(cls.name)
    if known is not None and known.__qualname__ != cls.__qualname__:
        raise ValueError(f"register_pooling: expected one layer per file, got {known.__name__} and {cls.__name__}.")
    _POOLINGS[cls.name] = cls
    return cls


def _discover() -> None:
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"{__package__}.{module.name}")


def list_poolings() -> list[str]:
    """Return the sorted names of all pooling layers."""
    _discover()
    return sorted(_POOLINGS)


def pooling_class(name: str) -> type[Pooling]:
    """Return the class of a registry name."""
    if name not in _POOLINGS:
        _discover()
    if name not in _POOLINGS:
        raise ValueError(
            f"create_pooling: expected one of {', '.join(sorted(_POOLINGS))}, got {name!r}."
            f"{suggestion(name, _POOLINGS)}"
        )
    return _POOLINGS[name]


def create_pooling(spec: str, in_channels: int, *, num_classes: int | None = None) -> Pooling:
    """Create a pooling layer from a spec string.

    Args:
        spec: A registry name with options, such as ``"isice(n_iter=5, sparsity=0.01)"``. A sum,
            such as ``"isqrt_cov + partial_correlation(ridge=10, scale=5) + 2 * gap"``, concatenates
            the vectors of its parts, each times its factor.
        in_channels: Channels of the feature map.
        num_classes: Number of classes, for layers that return logits (``needs_num_classes``).

    Example:
        >>> create_pooling("gap", in_channels=64).out_features
        64
    """
    parts = split_sum(spec) if isinstance(spec, str) else []
    if len(parts) > 1 or (parts and parts[0][0] != 1.0):
        layers = [create_pooling(part, in_channels, num_classes=num_classes) for _, part in parts]
        return Concatenation(layers, [factor for factor, _ in parts])
    name, options = parse_spec(spec)
    cls = pooling_class(name)
    for option in options:
        if option not in cls.option_names():
            known = cls.option_names()
            raise TypeError(
                f"{name}: expected options among {', '.join(known) or '(none)'}, got {option!r}."
                f"{suggestion(option, known)}"
            )
    if cls.needs_num_classes:
        if num_classes is None:
            raise ValueError(f"{name}: expected num_classes, got None; pass it, because this layer returns logits.")
        options["num_classes"] = num_classes
    return cls(in_channels, **options)
