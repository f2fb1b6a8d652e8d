"""docs/api/: one page per public module, with every public name and its docstring.

mkdocstrings fills in the docstrings when the site is built; these pages only list the names.
"""

import importlib
import inspect
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import isice
from isice.pooling import list_poolings, pooling_class

FOLDER = Path(__file__).resolve().parent / "api"
MODULES = (
    "functional", "pooling", "models", "estimator", "train", "inference", "explain", "report", "data", "metrics",
    "config", "records", "testing",
)  # fmt: skip
# Classes that the names of a page return, inherit from or contain.
ALSO = {
    "functional": (
        "isice.ops.graphical_lasso.GraphicalLassoResult",
        "isice.ops.joint_graphical_lasso.JointGraphicalLassoResult",
        "isice.ops.latent_graphical_lasso.LatentGraphicalLassoResult",
    ),
    "estimator": (
        "isice.estimator.graph.GraphMixin",
        "isice.estimator.inference.InferenceMixin",
        "isice.estimator.inference.DebiasedPrecision",
        "isice.estimator.inference.EdgeStability",
    ),
    "config": ("isice._augment_config.AugmentConfig",),
}


def public_names(module: ModuleType) -> list[str]:
    """Return ``__all__``, or the functions and classes that the module defines or collects."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    collects = module.__name__ == "isice.functional"
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isroutine(value) or inspect.isclass(value))
        and (value.__module__.startswith("isice.") if collects else value.__module__ == module.__name__)
    )


def path_of(module: ModuleType, name: str) -> str:
    """Return the dotted path under which a name is defined."""
    value = getattr(module, name)
    documented = inspect.isroutine(value) or inspect.isclass(value)
    return f"{value.__module__}.{value.__qualname__}" if documented else f"{module.__name__}.{name}"


def documented_names() -> dict[str, list[str]]:
    """Return page → dotted paths of the names on it."""
    found: dict[str, list[str]] = {}
    for page in MODULES:
        module = importlib.import_module(f"isice.{page}")
        found[page] = [*(path_of(module, name) for name in public_names(module)), *ALSO.get(page, ())]
    classes: list[Any] = [pooling_class(name) for name in list_poolings()]
    found["poolings"] = [f"{cls.__module__}.{cls.__name__}" for cls in classes]
    return found


def pages() -> dict[Path, str]:
    """Return all pages and their index."""
    found, index = {}, ["# API reference", "", "| module | content |", "|---|---|"]
    for page, names in documented_names().items():
        title = "isice.pooling: the methods" if page == "poolings" else f"isice.{page}"
        about = _about(page)
        index.append(f"| [{title}]({page}.md) | {about} |")
        entries = "\n".join(f"::: {name}\n" for name in names)
        found[FOLDER / f"{page}.md"] = f"# {title}\n\n{about}\n\n{entries}"
    direct = ", ".join(f"`{name}`" for name in isice.__all__ if name not in ("functional", "__version__"))
    index += ["", *textwrap.wrap(f"`import isice` gives these names directly: {direct}.", 100), ""]
    return {FOLDER / "index.md": "\n".join(index), **found}


def _about(page: str) -> str:
    if page == "poolings":
        return "One class per method; [Methods](../methods.md) compares them."
    text = inspect.getdoc(importlib.import_module(f"isice.{page}")) or ""
    return text.partition("\n")[0].lstrip("①②③④⑤⑥⑦⑧⑨ ")
