"""The layout: one-way imports, a core without the studio, Triton in kernels only, short files."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from isice._extras import EXTRAS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "isice"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# What each part may import from the package, in addition to itself and FOUNDATION. A part is a
# folder or file of src/isice; experiments/jobs is separate, because it computes what
# experiments only describes.
FOUNDATION = {"_atomic", "_checks", "_markup", "_parent", "_specs", "_tables"}
CORE = {
    **{name: set() for name in FOUNDATION},
    "kernels": set(),
    "ops": {"kernels"},
    "functional": {"ops"},
    "pooling": {"ops"},
    "testing": {"functional", "ops", "pooling"},
    "models": {"pooling"},
    "__init__": {"functional", "models", "pooling"},
}
_RUN = {"config", "data", "metrics", "models", "pooling", "records", "run_lock"}
_COMPUTE = {*_RUN, "functional", "inference", "ops", "train"}
ALLOWED = {
    **CORE,
    "_extras": set(),
    "__main__": {"_extras", "cli"},
    "estimator": {"functional", "graph_plots", "ops"},
    "metrics": set(),
    "_augment_config": set(),
    "config": {"_augment_config"},
    "records": {"config"},
    "run_lock": set(),
    "explanations": set(),
    "graph_plots": set(),
    "data": {"config"},
    "train": {*_RUN, "ops"},
    "inference": {*_RUN, "train"},
    "explain": {*_COMPUTE, "explanations"},
    "experiments": {"config", "records", "run_lock"},
    "experiments.jobs": {*_COMPUTE, "estimator", "experiments", "explain"},
    "report": {"config", "experiments", "explanations", "graph_plots", "metrics", "records"},
    "cli": None,
}
# timm requires huggingface_hub, so sharing a model may use it.
STUDIO_PACKAGES = {"PIL", "scipy"}.union(*EXTRAS.values()) - {"huggingface_hub"}


def part(path):
    words = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(words[:2]) if ".".join(words[:2]) in ALLOWED else words[0]


def imported_modules(path):
    """Absolute names of everything a file imports, also relatively or inside functions."""
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
    own = part(path)
    for name in imported_modules(path):
        package, *words = name.split(".")
        assert package != "triton" or own == "kernels", f"{path}: Triton is imported only in kernels/"
        assert own not in CORE or package not in STUDIO_PACKAGES, f"{path}: the core must not import {package}"
        if package != "isice" or not words or ALLOWED[own] is None:
            continue
        other = part(PACKAGE.joinpath(*words))
        if other in ALLOWED:
            assert other in {own} | FOUNDATION | ALLOWED[own], f"{path} must not import {name}"


def test_ops_has_four_private_modules():
    private = {path.stem for path in (PACKAGE / "ops").iterdir() if path.name.startswith("_") and path.suffix == ".py"}
    assert private == {"__init__", "_autograd", "_dispatch", "_linalg", "_numerics"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_file_has_two_subjects(path):
    assert len(path.read_text().splitlines()) <= 400
    assert path.name not in ("utils.py", "helpers.py", "common.py")


def test_public_names():
    import isice

    assert set(isice.__all__) == {
        "Network", "Pooling", "SPDPooling", "__version__", "attach", "create_model", "create_pooling", "functional",
        "initialize", "list_poolings", "load_weights", "register_pooling",
    }  # fmt: skip
    for name in isice.__all__:
        assert getattr(isice, name) is not None
    with pytest.raises(AttributeError, match="module 'isice' has no attribute 'creat_model'"):
        isice.creat_model  # noqa: B018


@pytest.mark.parametrize("module", ["isice", "isice.report", "isice.config", "isice.cli._data_roots"])
def test_light_imports_do_not_load_torch(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
