"""The layout: imports go one way, Triton stays in kernels, report knows no torch, files stay readable."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "isice"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# What each part may import from the package, besides itself. Parts are folders or single files of src/isice.
ALLOWED = {
    "_checks": set(),
    "_specs": set(),
    "kernels": {"_checks"},
    "ops": {"kernels", "_checks"},
    "functional": {"ops"},
    "pooling": {"ops", "_checks", "_specs"},
    "models": {"pooling", "ops", "_checks", "_specs"},
    "metrics": {"_checks"},
    "config": {"_checks", "_specs"},
    "records": {"config", "__init__"},
    "data": {"config", "_checks", "_specs"},
    "train": {"records", "models", "pooling", "ops", "data", "metrics", "config", "_checks", "_specs"},
    "inference": {"records", "train", "models", "data", "metrics", "config", "_checks", "_specs"},
    "experiments": {"config", "records", "data", "_checks", "_specs"},
    "report": {"experiments", "config", "records", "metrics", "_checks", "_specs"},
    "experiments.jobs": {
        "inference",
        "train",
        "data",
        "models",
        "pooling",
        "estimator",
        "experiments",
        "config",
        "records",
        "_checks",
    },
    "estimator": {"ops", "_checks", "functional"},
    "explain": {
        "inference",
        "train",
        "models",
        "pooling",
        "ops",
        "data",
        "report",
        "config",
        "_checks",
        "_specs",
        "functional",
    },
    "cli": None,
    "__init__": None,
    "__main__": None,
}


def part(path):
    relative = path.relative_to(PACKAGE)
    if relative.parts[:2] == ("experiments", "jobs"):
        return "experiments.jobs"
    return relative.parts[0].removesuffix(".py")


def imported_modules(path):
    """Absolute names of everything a file imports, relative imports resolved, also inside functions."""
    package = ["isice", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def test_every_part_has_a_place():
    assert {part(path) for path in SOURCES} <= set(ALLOWED)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    allowed, own = ALLOWED[part(path)], part(path)
    for name in imported_modules(path):
        words = name.split(".")
        if words[0] == "triton":
            assert own == "kernels", f"{path}: Triton is imported only in kernels/"
        if words[0] != "isice" or len(words) < 2 or allowed is None:
            continue
        if (PACKAGE / words[1]).is_dir() or (PACKAGE / f"{words[1]}.py").exists():
            assert words[1] == own or words[1] in allowed, f"{path} must not import {name}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_file_has_two_subjects(path):
    assert len(path.read_text().splitlines()) <= 400
    assert path.name not in ("utils.py", "helpers.py", "common.py")


def test_every_operation_is_in_the_facade():
    import isice.functional as F

    for name in F.__all__:
        assert getattr(F, name).__doc__, name
    assert F.__all__ == sorted(F.__all__)


def test_public_names():
    import isice

    assert set(isice.__all__) == {
        "Network", "Pooling", "SPDPooling", "__version__", "attach", "create_model", "create_pooling", "functional",
        "list_poolings", "load_weights", "register_pooling",
    }  # fmt: skip
    for name in isice.__all__:
        assert getattr(isice, name) is not None
    with pytest.raises(AttributeError, match="module 'isice' has no attribute 'creat_model'"):
        isice.creat_model  # noqa: B018


@pytest.mark.parametrize("module", ["isice", "isice.report", "isice.config", "isice.experiments.data_roots"])
def test_light_imports_do_not_load_torch(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
