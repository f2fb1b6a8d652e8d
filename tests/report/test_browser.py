"""The page in a real browser: elements are drawn and fit the window, light, dark, wide, narrow."""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from matplotlib.image import imread

from isice.experiments.loader import load_experiment
from isice.experiments.manifest import describe, write_manifest
from isice.report import write_report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
]  # fmt: skip
BACKGROUND = {"light": (0xF6, 0xF8, 0xFA), "dark": (0x0D, 0x11, 0x17)}
SCHEME = {"light": "--blink-settings=preferredColorScheme=1", "dark": "--blink-settings=preferredColorScheme=0"}
# Where the elements are, how far right anything reaches, and what was asked for from outside.
PROBE = """<script>
addEventListener("load", () => {
  const box = e => { const r = e.getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; };
  const fixed = document.querySelectorAll("main, main *:not(.scroll *):not(.wide picture *)");
  const edges = [...fixed].map(e => box(e)[0] + box(e)[2]);
  const boxes = name => [...document.querySelectorAll(name)].map(box);
  document.body.dataset.found = JSON.stringify({
    h1: boxes("h1"), table: boxes(".card.scroll"), img: boxes("img"), details: boxes("details"),
    loaded: [...document.images].every(i => i.complete && i.naturalWidth > 0),
    right: Math.max(...edges),
    outside: performance.getEntriesByType("resource").map(e => e.name).filter(n => !n.startsWith("data:")),
  });
});
</script></body>"""

# A frame has the width it is given, whatever the window: does its page scroll sideways?
FRAME = """<!doctype html><body style="margin: 0"><iframe style="border: 0; width: {width}px; height: 6000px"></iframe>
<script>
const frame = document.querySelector("iframe");
frame.onload = () => {{
  const root = frame.contentDocument.documentElement;
  document.body.dataset.scroll = JSON.stringify([root.clientWidth, root.scrollWidth]);
}};
frame.srcdoc = {page};
</script></body>"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium to open the page in")


@pytest.fixture(scope="module")
def page(tmp_path_factory, write_run):
    """Page of an experiment with published numbers, runs, evaluation, heat maps, a failure."""
    folder = tmp_path_factory.mktemp("runs")
    path = folder / "mine.toml"
    path.write_text(
        "[grid]\nmodel.pooling = ['gap', 'isice']\n[printed]\nsource = 'Table'\nrows = ['model.pooling']\n"
        "columns = ['metric']\ntable = '''\n accuracy\ngap 50\nisice 99\n'''\n"
    )
    write_run(folder, "gap", 0, 0.5)
    write_run(folder, "gap", 1, 0.7)
    write_run(folder, "isice", 0, 0.9)
    write_run(folder, "isice", 1, 0.0, status="failed")
    evaluation = {"split": "test", "which": "best", "flip": False, "top1": 0.75, "classes": ["a", "b"]}
    evaluation["confusion"] = [[0, 0, 3], [0, 1, 1], [1, 0, 1], [1, 1, 3]]
    (folder / "gap-0" / "evaluation.json").write_text(json.dumps({"schema": 1, "evaluations": [evaluation]}))
    write_manifest(describe(load_experiment(path)), folder)
    write_report(folder)
    (folder / "explain").mkdir()
    for theme in ("", "-dark"):
        shutil.copy(folder / "figures" / f"accuracy{theme}.png", folder / "explain" / f"01-bird-maps{theme}.png")
    return write_report(folder)["html"]


def probed(page, width):
    """A copy of the page that measures itself, also in windows narrower than 500."""
    html = page.read_text(encoding="utf-8").replace("</body>", PROBE)
    copy = page.with_name(f"probed-{width}.html")
    copy.write_text(html.replace("</head>", f"<style>html {{ width: {width}px; }}</style></head>"), encoding="utf-8")
    return copy


def chromium(page, folder, *options):
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", *options, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_does_not_scroll_sideways(page, tmp_path, width):
    outer = page.with_name(f"frame-{width}.html")
    inner = json.dumps(page.read_text(encoding="utf-8")).replace("</", "<\\/")
    outer.write_text(FRAME.format(width=width, page=inner), encoding="utf-8")
    text = chromium(outer, tmp_path, "--window-size=1400,6000", "--dump-dom")
    assert json.loads(re.search(r'data-scroll="([^"]*)"', text)[1]) == [width, width]


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 390)])
def test_the_page_in_a_browser(page, tmp_path, theme, width):
    page = probed(page, width)
    options = (f"--window-size={width},6000", SCHEME[theme])
    text = chromium(page, tmp_path, *options, "--dump-dom")
    found = json.loads(re.search(r'data-found="([^"]*)"', text)[1].replace("&quot;", '"'))
    assert found["loaded"]
    assert found["outside"] == []
    assert found["right"] <= width
    counts = {name: len(found[name]) for name in ("h1", "table", "img", "details")}
    assert counts == {"h1": 1, "table": 2, "img": 5, "details": 2}
    chromium(page, tmp_path, *options, f"--screenshot={tmp_path / 'shot.png'}")
    shot = (255 * imread(tmp_path / "shot.png")[..., :3]).round().astype(int)
    assert shot.shape[1] == width
    assert tuple(shot[-1, 0]) == BACKGROUND[theme]
    for name in counts:
        for x, y, w, h in found[name]:
            assert x >= 0
            assert h > 10
            area = shot[int(y) : int(y + h), int(x) : int(x + w)].reshape(-1, 3)
            assert len(np.unique(area, axis=0)) > 10, f"{name} at {x}, {y} is blank"
            assert _bright(np.median(area, axis=0)) == (theme == "light"), f"{name} is not in the {theme} theme"


def _bright(colour):
    return colour.mean() > 128
