"""The documentation site: navigation, anchors, public names, and the strict build."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import isice

from .report.test_browser import CHROMIUM, FLAGS, SCHEME

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


def test_options_in_inline_code_are_marked():
    html = load("site_hooks").on_page_content("<code>a-b --set x</code> --set <code><span>--set</span></code>")
    assert html == '<code>a-b <span class="option">--set</span> x</code> --set <code><span>--set</span></code>'


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site, and what the build printed."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_the_site_builds_strictly(site):
    reference = (site / "api" / "functional.html").read_text(encoding="utf-8")
    assert 'id="isice.ops.covariance.covariance"' in reference
    assert "Source code in" in reference
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        loaded = re.findall(r'<(?:link|script|img)[^>]+(?:href|src)="(https?://[^"]+)"', text)
        assert [url for url in loaded if "squidfunk" not in url] == [], page
        assert "<em " not in text, f"{page}: a formula with _{{…}} was read as emphasis with attributes"


# All pages in frames of the width of a phone or a desktop: how wide they are, and
# the colour behind them.
FRAMES = """<!doctype html><body>{frames}<script>
addEventListener("load", () => {{
  document.body.dataset.found = JSON.stringify([...document.querySelectorAll("iframe")].map(frame => {{
    const page = frame.contentDocument, wide = page.documentElement.scrollWidth;
    return [new URL(frame.src).pathname, wide, getComputedStyle(page.body).backgroundColor];
  }}));
}});
</script></body>"""
LOOKED_AT = ("index", "getting_started", "training", "choosing", "methods", "cli", "gpu", "changelog", "api/functional")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium to open the pages in")
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize(("theme", "background"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(30, 33, 41)")])
def test_no_page_scrolls_sideways(site, tmp_path, width, theme, background):
    style = f"border: 0; width: {width}px; height: 900px"
    frames = "".join(f'<iframe style="{style}" src="{(site / page).as_uri()}.html"></iframe>' for page in LOOKED_AT)
    (tmp_path / "frames.html").write_text(FRAMES.format(frames=frames))
    found = dom(tmp_path / "frames.html", theme)
    assert len(found) == len(LOOKED_AT)
    assert [page for page, wide, _ in found if wide != width] == []
    assert {colour for *_, colour in found} == {background}


def dom(page, theme):
    """Return what the script of a page has found."""
    options = [*FLAGS, SCHEME[theme], "--allow-file-access-from-files", f"--user-data-dir={page.parent / 'profile'}"]
    command = [CHROMIUM, *options, "--virtual-time-budget=8000", "--dump-dom", page.as_uri()]
    text = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True).stdout
    return json.loads(re.search(r'data-found="([^"]*)"', text)[1].replace("&quot;", '"'))


@pytest.mark.slow
def test_the_code_of_the_readme_runs_from_the_wheel(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".git", ".venv*", "runs", "site", "benchmarks"))
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    built = subprocess.run(
        [*pip, "wheel", "--no-deps", "--wheel-dir", tmp_path, source], capture_output=True, text=True
    )
    if "No matching distribution found for hatchling" in built.stderr:
        pytest.skip("needs the build backend")
    assert built.returncode == 0, built.stderr
    # An environment of its own, in which the packages that isice requires are found.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", packages, wheel], check=True)
    (packages / "others.pth").write_text(sysconfig.get_paths()["purelib"])
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    code = "\n".join([*blocks, "print(isice.__file__, tuple(logits.shape), tuple(vector.shape))"])
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [str(python), "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split(maxsplit=1) == [str(packages / "isice" / "__init__.py"), "(2, 200) (8, 2080)\n"]
