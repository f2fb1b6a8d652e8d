"""docs/methods.md says what the registry says."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from isice.pooling import list_poolings, pooling_class

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_methods", DOCS / "generate_methods.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_page_is_up_to_date(generator: ModuleType) -> None:
    page = (DOCS / "methods.md").read_text(encoding="utf-8")
    assert page == generator.render(), "docs/methods.md is out of date; run python docs/generate_methods.py."


def test_every_head_is_described_with_its_source_and_fidelity(generator: ModuleType) -> None:
    page = generator.render()
    for name in list_poolings():
        cls = pooling_class(name)
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert cls.reference in section
        assert f"Fidelity: {cls.fidelity}" in section
        assert cls.assumed in section
        assert all(f"- `{option}`: " in section for option in cls.option_names()), f"{name}: an option is not described"


def test_docstring_markup_becomes_markdown(generator: ModuleType) -> None:
    assert generator.markdown("``a`` and :meth:`~x.b` and `c`") == "`a` and `x.b` and `c`"
