"""Rebuild the generated pages, tables and pictures, or check that they are up to date.

Usage: python docs/build.py [--check | --no-draw] [methods scaling ...]

Each ``docs/generate_<name>.py`` has a function ``pages()`` that returns the text of every page it
owns. Tables are written from the records in ``benchmarks/results``.
"""

import argparse
import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]
NAMES = sorted(path.stem.removeprefix("generate_") for path in (ROOT / "docs").glob("generate_*.py"))


def rendered(names: list[str]) -> dict[Path, str]:
    """Return the up-to-date text of every page of the given generators."""
    found: dict[Path, str] = {}
    for name in names:
        found |= importlib.import_module(f"generate_{name}").pages()
    return found


def outdated(names: list[str]) -> list[str]:
    """Return the pages that differ from what their generators give."""
    pages = rendered(names)
    return [str(path.relative_to(ROOT)) for path, text in pages.items() if _text(path) != text]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def rebuild(names: list[str], *, draw: bool) -> list[str]:
    """Write the pages, and the gallery's pictures if ``draw``; return what failed."""
    failed = []
    if draw and "gallery" in names:
        failed = importlib.import_module("generate_gallery").draw_all()
    for path, text in rendered(names).items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return failed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is out of date")
    parser.add_argument("--no-draw", action="store_true", help="keep the gallery's pictures")
    parser.add_argument("names", nargs="*", help=f"generators to run, of {', '.join(NAMES)}; all by default")
    options = parser.parse_args(arguments)
    names = options.names or NAMES
    if unknown := set(names) - set(NAMES):
        parser.error(f"expected names of {', '.join(NAMES)}, got {', '.join(sorted(unknown))}")
    if options.check:
        problems = [f"{page} is out of date; run python docs/build.py --no-draw" for page in outdated(names)]
    else:
        problems = [f"{name} failed" for name in rebuild(names, draw=not options.no_draw)]
    for problem in problems:
        print(f"docs: {problem}", file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
