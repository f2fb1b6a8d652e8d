"""MkDocs hooks: pages and files outside docs/, and links to them."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
# Pages of the site that are files of the repository's root.
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
_LINK = re.compile(r"(?<=\]\()(?!https?:|#|mailto:)([^)\s#]+)")
_CODE, _OPTION = re.compile(r"<code>[^<]+</code>"), re.compile(r"(?<![\w-])--[\w-]+")


def on_files(files: Files, config: Any) -> Files:
    """Add the root's pages, and every file outside docs/ that a page links to."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=_read(source)))
    waiting = [f"docs/{file.src_uri}" for file in files if file.src_uri.endswith(".md") and not file.generated_by]
    waiting += list(PAGES)
    seen: set[str] = set()
    while waiting:
        document = waiting.pop()
        for target in _LINK.findall(_read(document)):
            path = _resolved(document, target)
            if path in PAGES or path.startswith("docs/") or path in seen or not (ROOT / path).is_file():
                continue
            seen.add(path)
            files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
            if path.endswith(".md"):
                waiting.append(path)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite links between files of the repository to links between pages of the site."""
    own = page.file.src_uri
    source = next((name for name, uri in PAGES.items() if uri == own), None)
    if source is None:
        source = own if (ROOT / own).is_file() and page.file.generated_by else f"docs/{own}"

    def site_link(match: re.Match[str]) -> str:
        path = _resolved(source, match[1])
        uri = PAGES.get(path, path.removeprefix("docs/"))
        return posixpath.relpath(uri, posixpath.dirname(own) or ".")

    return _LINK.sub(site_link, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Mark options such as ``--set`` in inline code: a browser would break them at a hyphen."""
    return _CODE.sub(lambda code: _OPTION.sub(r'<span class="option">\g<0></span>', code[0]), html)


def _resolved(document: str, target: str) -> str:
    """Return the repository's path of a link; a folder stands for its README or project file."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(document), target))
    inside = [f"{path}/{name}" for name in ("README.md", "pyproject.toml") if (ROOT / path / name).is_file()]
    return inside[0] if inside else path


def _read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")
