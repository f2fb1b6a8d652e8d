"""The documentation site: navigation, anchors, public names, and the strict build."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import isice

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
# Pages of the site that are files of the repository's root.
FROM_ROOT = {"index.md", "changelog.md", "contributing.md"}


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def site_config() -> dict:
    return yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def listed(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [page for entry in (nav.values() if isinstance(nav, dict) else nav) for page in listed(entry)]


def test_the_navigation_has_every_page_once():
    assert sorted(listed(site_config()["nav"])) == sorted([*PAGES, *FROM_ROOT])


def test_the_site_needs_no_network():
    theme = site_config()["theme"]
    assert theme["font"] is False
    assert {entry["scheme"] for entry in theme["palette"]} == {"default", "slate"}


def test_every_public_name_is_in_the_reference():
    generator = load("generate_api")
    documented = {path.rsplit(".", 1)[-1] for paths in generator.documented_names().values() for path in paths}
    public = set(isice.__all__) - {"__version__", "functional"}
    public |= {name for name in vars(isice.functional) if hasattr(vars(isice.functional)[name], "__wrapped__")}
    assert public - documented == set()
    assert {"covariance", "graphical_lasso", "isice", "vectorize"} <= documented
    for page, text in generator.pages().items():
        assert page.read_text(encoding="utf-8") == text


def test_every_command_is_in_the_reference():
    from typer.main import get_command

    from isice.cli import app

    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert [name for name in get_command(app).commands if f"\n## {name}\n" not in text] == []


@pytest.mark.parametrize("page", [*PAGES, "../README.md", "../CHANGELOG.md", "../CONTRIBUTING.md"])
def test_anchors_exist(page):
    path = (DOCS / page).resolve()
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)", path.read_text(encoding="utf-8")):
        other = (path.parent / target) if target else path
        headings = re.findall(r"^#+ (.*)$", other.read_text(encoding="utf-8"), flags=re.MULTILINE)
        slugs = {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in headings}
        assert anchor in slugs, f"{page} links to {target}#{anchor}"


def test_links_out_of_docs_become_links_inside_the_site():
    hooks = load("site_hooks")
    generated = type("File", (), {"src_uri": "internals/kernels.md", "generated_by": None})
    page = type("Page", (), {"file": generated})
    text = hooks.on_page_markdown("[a](../../README.md#why) [b](../gpu.md) [c](https://x.org) [d](#e)", page=page)
    assert text == "[a](../index.md#why) [b](../gpu.md) [c](https://x.org) [d](#e)"


@pytest.mark.slow
def test_the_site_builds_strictly(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    reference = (tmp_path / "api" / "functional.html").read_text(encoding="utf-8")
    assert 'id="isice.ops.covariance.covariance"' in reference
    assert "Source code in" in reference
    for page in tmp_path.rglob("*.html"):
        loaded = re.findall(r'<(?:link|script|img)[^>]+(?:href|src)="(https?://[^"]+)"', page.read_text("utf-8"))
        assert [url for url in loaded if "squidfunk" not in url] == [], page
