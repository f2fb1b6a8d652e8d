"""The page of the solver says what its records say."""

from benchmarks.graphical_lasso_tables import DOCUMENT, tables
from benchmarks.pages import filled


def test_the_tables_of_the_page_are_those_of_the_records():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert filled(text, tables()) == text, "run: python -m benchmarks.graphical_lasso_tables"
