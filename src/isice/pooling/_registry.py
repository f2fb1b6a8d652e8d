"""Registry of pooling layers: those of this folder, of your own code and of installed packages."""

import functools
import importlib
import importlib.metadata
import inspect
import pkgutil
import sys
import warnings
from collections.abc import Callable
from typing import TypeVar, overload

from .._checks import suggestion
from .._specs import parse_spec, split_sum
from ._base import Pooling
from ._concatenation import Concatenation

ENTRY_POINTS = "isice.poolings"
"""Entry point group in which installed packages name their pooling layers."""

_POOLINGS: dict[str, type[Pooling]] = {}
PoolingClass = TypeVar("PoolingClass", bound=type[Pooling])


@overload
def register_pooling(name: str) -> Callable[[PoolingClass], PoolingClass]: ...
@overload
def register_pooling(name: PoolingClass) -> PoolingClass: ...
def register_pooling(name: str | PoolingClass) -> PoolingClass | Callable[[PoolingClass], PoolingClass]:
    """Register a pooling layer (class decorator): ``@register_pooling("my_pooling")``.

    Args:
        name: The name in specs. Without a name, ``@register_pooling`` takes that of the file.

    Raises:
        ValueError: Another class has the name. The same class may be defined again, as a notebook
            does when a cell is run twice.
    """
    if isinstance(name, str):
        return functools.partial(_register, name)
    module = name.__module__.rsplit(".", 1)[-1]
    if module == "__main__":
        raise ValueError(
            f"register_pooling: expected a name for {name.__name__}, which is defined in a script or notebook; "
            'write @register_pooling("name").'
        )
    return _register(module, name)


def _register(name: str, cls: PoolingClass) -> PoolingClass:
    if not name.isidentifier():
        raise ValueError(f"register_pooling: expected an identifier, got {name!r}; it is written in specs.")
    if not (isinstance(cls, type) and issubclass(cls, Pooling)):
        raise TypeError(
            f"register_pooling: expected a subclass of isice.Pooling, got {cls!r}; derive {name!r} from it."
        )
    parameters = list(inspect.signature(cls.__init__).parameters.values())[2:]  # after self and in_channels
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    if positional:
        raise TypeError(
            f"register_pooling: expected keyword-only options, got {', '.join(positional)} in {cls.__name__}.__init__; "
            "write in_channels, *, … because specs and saved networks name every option."
        )
    if name in _built_in() and cls.__module__ != f"{__package__}.{name}":
        importlib.import_module(f"{__package__}.{name}")  # it is registered before the names are compared
    known = _POOLINGS.get(name)
    if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(
            f"register_pooling: expected a new name, got {name!r} for {_place(cls)}, which {_place(known)} has; "
            "choose another."
        )
    cls.name = name
    _POOLINGS[name] = cls
    return cls


def _place(cls: type[Pooling]) -> str:
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return f"{cls.__module__}.{cls.__qualname__}" + (f" ({file})" if file else "")


@functools.cache
def _built_in() -> frozenset[str]:
    package = importlib.import_module(__package__)
    return frozenset(m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_"))


def _discover() -> None:
    for name in sorted(_built_in()):
        importlib.import_module(f"{__package__}.{name}")
    _load_installed()


@functools.cache
def _load_installed() -> None:
    """Import the entry points of installed packages: classes, or modules that register them."""
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        try:
            loaded = entry.load()
            if isinstance(loaded, type) and loaded not in _POOLINGS.values():
                _register(entry.name, loaded)
        except Exception as error:  # one broken package must not disable the others
            package = entry.dist.name if entry.dist is not None else entry.value
            warnings.warn(
                f"isice: expected the pooling {entry.name!r} of the package {package!r}, but it could not be loaded "
                f"({type(error).__name__}: {error}); repair or remove that package.",
                stacklevel=2,
            )


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
            f"{suggestion(name, _POOLINGS) or ' Register one of your own with isice.register_pooling.'}"
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
    known = cls.option_defaults()
    for option in options:
        if option not in known:
            raise TypeError(
                f"{name}: expected options among {', '.join(known) or '(none)'}, got {option!r}."
                f"{suggestion(option, known)}"
            )
    if cls.needs_num_classes:
        if num_classes is None:
            raise ValueError(f"{name}: expected num_classes, got None; pass it, because this layer returns logits.")
        options["num_classes"] = num_classes
    layer = cls(in_channels, **options)
    if not hasattr(layer, "out_features"):
        raise TypeError(f"{name}: expected an attribute out_features, the length of a vector, got none; set it.")
    return layer
