"""Pages whose tables are written from records, between the markers ``<!-- name -->`` and ``<!-- /name -->``."""

import re
from collections.abc import Mapping
from pathlib import Path


def filled(text: str, tables: Mapping[str, str]) -> str:
    """The text with each table in its place.

    Example:
        >>> filled("<!-- a -->\\nold\\n<!-- /a -->", {"a": "new"})
        '<!-- a -->\\nnew\\n<!-- /a -->'
    """
    for name, table in tables.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"pages: expected the markers <!-- {name} --> and <!-- /{name} -->, got none; add them.")
        text = pattern.sub(lambda match, table=table: f"{match[1]}{table}\n{match[2]}", text)
    return text


def fill(page: Path, tables: Mapping[str, str]) -> None:
    """Writes the tables of a page anew."""
    page.write_text(filled(page.read_text(encoding="utf-8"), tables), encoding="utf-8")
    print(f"wrote {page.name}")
