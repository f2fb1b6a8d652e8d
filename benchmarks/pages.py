"""Write tables from records into pages, between ``<!-- name -->`` and ``<!-- /name -->``."""

import json
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
MISSING = "—"
_NUMBER = re.compile(rf"[+−-]?\d|{MISSING}|$")


def read_results(name: str) -> dict[str, Any]:
    """Return a record of ``benchmarks/results``."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; columns of numbers are right-aligned, except the first.

    Example:
        >>> print(table(["D", "mode", "ms"], [("32", "high", "0.5")]))
        | D | mode | ms |
        | --- | --- | ---: |
        | 32 | high | 0.5 |
    """
    cells = [*rows] or [[MISSING] * len(header)]
    numbers = [all(_NUMBER.match(cell) for cell in column) for column in zip(*cells, strict=True)]
    rule = ["---", *("---:" if number else "---" for number in numbers[1:])]
    lines = [header, rule, *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def filled(text: str, tables: Mapping[str, str]) -> str:
    """Return the text with each table between its markers.

    Example:
        >>> filled("<!-- a -->\\nold\\n<!-- /a -->", {"a": "new"})
        '<!-- a -->\\nnew\\n<!-- /a -->'
    """
    for name, content in tables.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"pages: expected the markers <!-- {name} --> and <!-- /{name} -->, got none; add them.")
        text = pattern.sub(lambda match, content=content: f"{match[1]}{content}\n{match[2]}", text)
    return text


def fill(page: Path, tables: Mapping[str, str]) -> None:
    """Update the tables of a page in place."""
    page.write_text(filled(page.read_text(encoding="utf-8"), tables), encoding="utf-8")
    print(f"wrote {page.name}")


def provenance(record: dict[str, Any]) -> str:
    """Return machine, version, commit and seed of a record, and its command in short lines."""
    hardware = record["hardware"]
    threads = hardware.get("threads")
    place = hardware.get("gpu") or hardware["cpu"] + (f", {threads} thread{'s' * (threads > 1)}" if threads else "")
    facts = f"torch {record['versions']['torch']}; commit {record['commit'] or 'unknown'}; seed {record['seed']}"
    lines = textwrap.wrap(record["command"], 96, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)
    command = " \\\n".join(lines)
    return f"{place}; {facts}:\n\n```sh\n{command}\n```"
