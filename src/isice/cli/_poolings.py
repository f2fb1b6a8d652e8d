"""Names and summaries of the poolings, read from their source without importing torch."""

import ast
import importlib.metadata
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "pooling"


def pooling_summaries() -> dict[str, str]:
    """Return name → first line of the docstring, or the package of an installed pooling."""
    found = {path.stem: _summary(path) for path in FOLDER.glob("[a-z]*.py")}
    for entry in importlib.metadata.entry_points(group="isice.poolings"):
        found.setdefault(entry.name, f"of the package {entry.dist.name if entry.dist is not None else entry.value}")
    return dict(sorted(found.items()))


def _summary(path: Path) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    registered = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.decorator_list]
    text = ast.get_docstring(registered[0] if registered else tree) or ""
    return text.partition("\n")[0].replace("``", "").rstrip(".")
