"""Names that look like markup in every output: terminal, Markdown, LaTeX, HTML, figures, cards."""

import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from markdown_it import MarkdownIt
from matplotlib.text import Text as PlotText
from PIL import Image
from rich.console import Console

from isice._markup import code_span, escape_control, escape_markdown
from isice.cli import _app
from isice.experiments.axes import Axis, Value
from isice.experiments.loader import load_experiment
from isice.explanations import ChannelGraph, ExplainedImage, Explanation
from isice.graph_plots import plot_graph
from isice.models.model_card import card_text
from isice.report import explain_page, figures, write_report
from isice.report.explain_page import write_explanations
from isice.report.report_page import Report, report_latex, report_markdown
from isice.report.tables import Table
from isice.report.text_wrap import wrap_text
from isice.train.progress import TrainingProgress

from ._hostile_names import HOSTILE
from .cli._invoke import invoke
from .report.conftest import _write_run

TABLE = Table(("name", *HOSTILE), [(name, *["1.0"] * len(HOSTILE)) for name in HOSTILE], n_text=1)


def visible(name: str) -> str:
    """The name as one line of text."""
    return " ".join(escape_control(name).split())


class Page(HTMLParser):
    """The text, tags and attributes of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.tags, self.attributes = "", [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


def check_page(page: Page) -> None:
    assert not {"script", "a", "iframe"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    sources = [value for name, value in page.attributes if name in ("src", "srcset", "href")]
    assert all(value.startswith(("data:", "figures/", "heat_maps/")) for value in sources), sources


@pytest.mark.parametrize("name", HOSTILE)
def test_markdown(name: str):
    for text in (escape_markdown(name), code_span(name)):
        page = Page(MarkdownIt("commonmark").render(f"before {text} after"))
        assert page.text.strip() == f"before {visible(name)} after"
        assert set(page.tags) <= {"p", "code"}


def test_markdown_of_a_report(tmp_path: Path):
    names = list(HOSTILE)
    report = Report(
        names[10], names[11], names, [], TABLE, "", list(zip(names, names, strict=True)), {"S": {n: n for n in names}}
    )
    text = report_markdown(report, [], tmp_path)
    page = Page(MarkdownIt("commonmark").enable("table").render(text))
    check_page(page)
    assert not {"em", "img"} & set(page.tags)
    assert page.tags.count("tr") == len(HOSTILE) + 1
    assert page.tags.count("strong") == len(HOSTILE)  # only our own "Failed:"
    for name in HOSTILE:
        assert page.text.count(visible(name)) >= 5, name


def test_latex():
    report = Report(HOSTILE[0], "", [], [], TABLE, "", [], {})
    text = report_latex(report)
    assert not re.search(r"(\\\\|\\midrule|\\toprule)\s*[\[*]", text)
    body = text.replace(r"\\", "")
    for special in "#%":
        assert not re.search(rf"(?<!\\){special}", body.split("\n", 1)[1])
    commands = set(re.findall(r"\\([a-z]+)", text))
    assert "input" not in commands
    assert text.count("$") % 2 == 0
    rows = text.split("\\midrule\n")[1].split("\\bottomrule")[0].splitlines()
    assert len(rows) == len(HOSTILE)
    assert all(len(re.findall(r"(?<!\\)&", row)) == len(HOSTILE) for row in rows)


@pytest.mark.parametrize("name", HOSTILE)
def test_terminal(name: str, monkeypatch: pytest.MonkeyPatch):
    console = Console(file=io.StringIO(), width=400, force_terminal=False)
    monkeypatch.setattr(_app, "console", console)
    _app.tell(name)
    made = _app.table("a", "b", title=name)
    made.add_row(name, name)
    console.print(made)
    console.print(_app.facts_table([("fact", name)]))
    console.print(Table((name, "n"), [(name, "1")], n_text=1).to_rich())
    with TrainingProgress(name, 1, 1, console) as progress:
        progress.epoch({"epoch": 1, "train_loss": 1.0, "train_accuracy": 0.5, "seconds": 1.0, "images_per_second": 1.0})
    output = console.file.getvalue()
    assert "\x1b" not in output
    first = escape_control(name).split("\n")[0]
    assert output.count(first) >= 8


def test_progress_bar():
    console = Console(file=io.StringIO(), width=400, force_terminal=True)
    for name in HOSTILE:
        with TrainingProgress(name, 1, 1, console) as progress:
            progress.step(1, 1, 1.0, 0.5)


def write_runs(folder: Path) -> None:
    """Runs whose classes have the names, in the record's files for figures."""
    for pooling in ("gap", "isice"):
        _write_run(folder, pooling, 0, 0.5)
        run, classes = folder / f"{pooling}-0", list(HOSTILE[:8])
        rng = np.random.default_rng(0)
        np.savez(run / "arrays.npz", classes=classes, images=rng.random((8, 8, 8, 1)), vectors=rng.normal(size=(8, 4)))
        entry = {"split": "test", "which": "best", "epoch": 1, "flip": False, "top1": 0.5, "classes": classes}
        entry |= {"confusion": [[i, (i + 1) % 8, 3] for i in range(8)], "images": 24, "per_class": [0.0] * 8}
        (run / "evaluation.json").write_text(json.dumps({"schema": 1, "evaluations": [entry]}))
    _write_run(folder, "covariance", 0, 0.5, status="failed")
    record = folder / "covariance-0" / "record.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"error": " ".join(HOSTILE)}))


def test_report_with_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shown: set[str] = set()
    save = figures.save_themed

    def save_and_look(draw, path):
        def drawn():
            figure = draw()
            shown.update(t.get_text() for t in figure.findobj(PlotText)) if figure is not None else None
            return figure

        return save(drawn, path)

    monkeypatch.setattr(figures, "save_themed", save_and_look)
    folder = tmp_path / "$<b>[x]"
    write_runs(folder)
    paths = write_report(folder)
    page = Page(paths["html"].read_text(encoding="utf-8"))
    check_page(page)
    assert visible(HOSTILE[10]) in page.text
    check_page(Page(MarkdownIt("commonmark").enable("table").render(paths["markdown"].read_text(encoding="utf-8"))))
    assert set(HOSTILE[:2]) <= shown
    assert (folder / "figures" / "confusion.png").stat().st_size > 1000


def explanation(name: str) -> Explanation:
    rng = np.random.default_rng(0)
    return Explanation(
        target=name,
        probability=0.5,
        predicted=f"not {name}",
        heat=rng.random((8, 8)),
        class_map=rng.normal(size=(8, 8)),
        graph=ChannelGraph(np.eye(4), np.array([[0, 1]]), np.array([0.5]), rng.random((1, 2, 8, 8))),
    )


def test_explain(tmp_path: Path):
    picture = np.full((8, 8, 3), 0.5)
    names = [name for name in HOSTILE if len(name) < 60]
    several = ExplainedImage("all", names[10], picture, {name: explanation(name) for name in (names[1], *names[10:12])})
    write_explanations([several], tmp_path / "out", graphs=False)
    one = ExplainedImage(names[10], names[10], picture, {names[0]: explanation(names[0])})
    written = write_explanations([one], tmp_path / "out")
    check_page(Page(written["html"].read_text(encoding="utf-8")))
    assert all(path.parent == tmp_path / "out" for path in written.values())


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_chooses_no_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(explain_page, "save_themed", lambda draw, path: path.write_bytes(b""))
    write_explanations([ExplainedImage(name, name, np.ones((8, 8, 3)), {name: explanation(name)})], tmp_path / "out")
    axis = Axis("pooling", (Value(name, name, {"model.pooling": "gap"}),))
    (cell,) = replace(load_experiment("digits"), axes=(axis,)).cells()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    for file in (cell.name, *(path.name for path in (tmp_path / "out").iterdir())):
        assert re.fullmatch(r"[\w.-]+", file)


def test_graph_and_wrapped_text():
    figure = plot_graph(np.eye(len(HOSTILE)), list(HOSTILE)).figure
    figure.canvas.draw()
    for name in HOSTILE:
        assert "".join(wrap_text(name, 1e6, size=8)) == " ".join(name.split())


def test_model_card():
    facts = {"data": "", "images": {}, "accuracy": {}, "epoch": 1, "chosen_on": None, "seed": 0, "precision": "fp32"}
    facts |= {"hardware": None, "commit": None, "versions": {}, "hash": "0"}
    for name in HOSTILE:
        network = {"name": name, "pooling": name, "num_classes": 2, "reduce": 4, "in_chans": 3}
        text = card_text({"network": network, "about": {"training": facts | {"data": name}}})
        page = Page(MarkdownIt("commonmark").enable("table").render(text))
        check_page(page)
        assert page.text.count(visible(name)) >= 4, name


def test_train_report_and_explain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    name = HOSTILE[0]
    for part in ("train", "test"):
        for label, colour in ((name, "red"), ("plain", "blue")):
            for number in range(4):
                path = tmp_path / "data" / part / label / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (8, 8), colour).save(path)
    monkeypatch.chdir(tmp_path)

    settings = ["data.root=data", "data.image_size=8", "data.batch_size=4", "optim.epochs=1", "threads=1", "device=cpu"]
    settings += ["model.pooling=gap", "model.reduce=4", "tensorboard=false"]
    options = [word for setting in settings for word in ("--set", setting)]
    invoke("train", "--data", "folder", "--out", "run", *options)
    invoke("eval", "run")
    invoke("predict", "run", str(Path("data", "test", name, "0.png")))
    invoke("report", "run")
    invoke("explain", "run", "test:0", "--out", "explained")
