"""docs/methods.md describes every option of every pooling."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from isice.pooling import list_poolings, pooling_class

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "methods.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_methods", DOCS / "generate_methods.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def section_of(name: str) -> str:
    """Return the section of a pooling without line breaks."""
    return " ".join(PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0].split())


def described_options(name: str) -> set[str]:
    """Return the options that a section describes, itself or by naming another pooling's."""
    section = section_of(name)
    parents = re.findall(r"- `\*\*options`: Options of `(\w+)`", section)
    return set(re.findall(r"- `(\w+)`: ", section)).union(*map(described_options, parents))


@pytest.mark.parametrize("name", list_poolings())
def test_every_option_is_described(name: str) -> None:
    assert set(pooling_class(name).option_defaults()) <= described_options(name)


def test_docstring_markup_becomes_markdown(generator: ModuleType) -> None:
    assert generator.markdown("``a`` and :meth:`~x.b` and `c`") == "`a` and `x.b` and `c`"
