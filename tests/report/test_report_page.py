"""The report files: self-contained, complete, and made without torch."""

import base64
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from isice.report import write_report

PNG = b"\x89PNG\r\n\x1a\n"


class Collector(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.sources = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.sources += [value for name, value in attrs if name in ("src", "srcset", "href")]


@pytest.fixture(scope="module")
def report(tmp_path_factory, write_runs):
    """The folder of a report; only read."""
    folder = write_runs(tmp_path_factory.mktemp("runs"))
    names = {"markdown": "report.md", "latex": "report.tex", "html": "report.html"}
    assert write_report(folder) == {kind: folder / name for kind, name in names.items()}
    return folder


@pytest.fixture
def page(report):
    return (report / "report.html").read_text(encoding="utf-8")


def test_pictures_are_embedded(page):
    parser = Collector()
    parser.feed(page)
    assert parser.tags.count("img") == 3
    assert len(parser.sources) == 6
    for source in parser.sources:
        kind, data = source.split(",", 1)
        assert kind == "data:image/png;base64"
        assert base64.b64decode(data).startswith(PNG)


def test_no_external_reference(page):
    assert not re.search(r"https?://|url\(|@import|<script|<link", page)


def test_table_failure_and_environment(page):
    for part in (
        "60.0 ± 14.1",
        "12,345",
        '<td data-label="head">isice</td>',
        "prefers-color-scheme",
        "viewport",
        "2.15.0",
        "0123456789ab",
    ):
        assert part in page


def test_text_of_records_is_escaped(page):
    assert "&lt;b&gt;nan&lt;/b&gt;" in page
    assert "<b>nan</b>" not in page


def test_markdown_links_existing_pictures(report):
    text = (report / "report.md").read_text(encoding="utf-8")
    links = re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert len(links) == 3
    for link in links:
        assert (report / link).read_bytes().startswith(PNG)
    assert "| gap | 60.0 ± 14.1 |" in text
    assert "**Failed:** isice (seed 1)" in text


def test_pictures_differ_by_theme(report):
    for stem in ("accuracy", "curves", "descriptors"):
        light, dark = (report / "figures" / f"{stem}{theme}.png" for theme in ("", "-dark"))
        assert light.read_bytes() != dark.read_bytes()


def test_only_failures_still_make_a_page(tmp_path, write_run):
    write_run(tmp_path, "isice", 0, 0.0, status="failed")
    page = write_report(tmp_path)["html"].read_text(encoding="utf-8")
    assert "failed" in page
    assert "<img" not in page


def test_report_never_imports_torch(runs):
    code = (
        "import sys; from isice.report import write_report; write_report(sys.argv[1]); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(runs)], check=False).returncode == 0


def test_a_selection_on_the_test_part_is_said(tmp_path, write_runs):
    import json

    folder = write_runs(tmp_path)
    assert "best one on the test part" not in (write_report(folder)["markdown"]).read_text(encoding="utf-8")
    record = next(folder.glob("*/record.json"))
    content = json.loads(record.read_text(encoding="utf-8"))
    content["config"]["select_on"] = "test"
    record.write_text(json.dumps(content), encoding="utf-8")
    text = (write_report(folder)["markdown"]).read_text(encoding="utf-8")
    assert "In 1 of" in text
    assert "the reported epoch is the best one on the test part, as asked for" in text
    latex = " ".join((folder / "report.tex").read_text(encoding="utf-8").split())
    assert "the reported epoch is the best one on the test part, as asked for" in latex
