"""Documents: code blocks and docstring examples run, links resolve, generated pages are up to date."""

import doctest
import importlib.util
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

import isice

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(isice.__path__, "isice.")
    if not module.ispkg and ".kernels." not in module.name
)


def run_blocks(page: Path) -> dict[str, object]:
    """Execute the Python blocks of a page in one namespace."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert blocks, f"{page.name} has no Python block"
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(block, namespace)
    return namespace


def test_the_code_of_the_readme_runs():
    namespace = run_blocks(ROOT / "README.md")
    assert namespace["logits"].shape == (2, 200)
    assert namespace["vector"].shape == (8, 2080)


def test_the_code_of_the_graphical_lasso_page_runs():
    torch.manual_seed(0)
    namespace = run_blocks(ROOT / "docs" / "graphical_lasso.md")
    assert namespace["result"].precision.shape == (8, 32, 32)
    assert namespace["model"].precision_.shape == (12, 12)


def test_the_readme_counts_the_poolings():
    assert f"has {len(isice.list_poolings())}\npoolings" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    module = importlib.import_module(name)
    torch.manual_seed(0)
    results = doctest.testmod(module, extraglobs={"torch": torch}, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.failed == 0


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(path):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_there_is_one_version():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == isice.__version__
    assert f"version: {isice.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {isice.__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["readme", "methods", "benchmarks", "graphical_lasso", "scaling", "gallery"])
def test_generated_pages_are_up_to_date(name, build, capsys):
    assert build.main(["--check", name]) == 0, capsys.readouterr().err


def test_the_check_finds_an_outdated_page(build, monkeypatch, capsys):
    monkeypatch.setattr(build, "rendered", lambda names: {ROOT / "README.md": "other text"})
    assert build.main(["--check", "readme"]) == 1
    assert "README.md is out of date" in capsys.readouterr().err
