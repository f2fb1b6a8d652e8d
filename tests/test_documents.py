"""The documents are true: the README's code runs, every docstring example runs, links lead somewhere."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest
import torch

import isice

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(isice.__path__, "isice.")
    if not module.ispkg and ".kernels." not in module.name
)


def test_the_first_screen_of_the_readme_runs():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert len(blocks) >= 3
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(block, namespace)
    assert namespace["logits"].shape == (2, 200)
    assert namespace["vector"].shape == (8, 2080)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    module = importlib.import_module(name)
    torch.manual_seed(0)
    results = doctest.testmod(module, extraglobs={"torch": torch}, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.failed == 0


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text()):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_the_version_is_one():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == isice.__version__
    assert f"version: {isice.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {isice.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_page_of_benchmarks_says_what_the_records_say():
    import importlib.util

    spec = importlib.util.spec_from_file_location("generate_benchmarks", ROOT / "docs" / "generate_benchmarks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8") == module.page(), "run make docs"
