"""Tables of text for Markdown, LaTeX and the terminal, and the table of training runs."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table as RichTable
from rich.text import Text

from .._markup import escape_control, escape_markdown
from ..metrics import mean_std
from .results import Group, Results
from .significance import compare_with_best

MISSING = "—"
# Superscripts that link a cell to a note below its table.
NOTE_MARKS = "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐ"
_AXIS_TITLES = {"model.pooling": "head", "model.backbone": "backbone", "data.name": "data"}
_LATEX = {
    **{char: f"\\{char}" for char in "&%$#_{}"},
    **{"ä": r"\"{a}", "ö": r"\"{o}", "ü": r"\"{u}", "é": r"\'{e}"},
    # In braces, because a bracket or star after the end of a row is read as an option.
    **{"[": "{[}", "]": "{]}", "*": "{*}", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"±": r"$\pm$", "−": "$-$", "×": r"$\times$", "÷": r"$\div$", "≥": r"$\ge$", "≤": r"$\le$", "→": r"$\to$"},
    **{"λ": r"$\lambda$", "η": r"$\eta$", "Ω": r"$\Omega$", "Σ": r"$\Sigma$", "∇": r"$\nabla$", "‖": r"$\|$"},
    **{"₁": r"$_1$", "²": r"$^2$", "\u0302": r"\^{}", "√": r"$\surd$", "…": r"\dots{}", "—": "---", "–": "--"},
    **{mark: f"\\textsuperscript{{{letter}}}" for mark, letter in zip(NOTE_MARKS, "abcdefghijklm", strict=True)},
}


@dataclass(frozen=True)
class Table:
    """A table of text; the first ``n_text`` columns are words, the others numbers."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    n_text: int

    def to_markdown(self) -> str:
        """Return the table in GitHub's Markdown."""
        rule = ["---"] * self.n_text + ["---:"] * (len(self.columns) - self.n_text)
        words = [list(map(escape_markdown, line)) for line in (self.columns, *self.rows)]
        return "\n".join("| " + " | ".join(line) + " |" for line in (words[0], rule, *words[1:])) + "\n"

    def to_latex(self, caption: str = "") -> str:
        """Return a LaTeX ``table`` environment in the style of ``booktabs``."""
        head, *body = (" & ".join(map(escape_latex, row)) + r" \\" for row in [self.columns, *self.rows])
        lines = [
            "% needs \\usepackage{booktabs}",
            "\\begin{table}",
            "\\centering",
            f"\\begin{{tabular}}{{{'l' * self.n_text}{'r' * (len(self.columns) - self.n_text)}}}",
            "\\toprule",
            head,
            "\\midrule",
            *body,
            "\\bottomrule",
            "\\end{tabular}",
            *([f"\\caption{{{escape_latex(caption)}}}"] if caption else []),
            "\\end{table}",
        ]
        return "\n".join(lines) + "\n"

    def fit(self, width: int) -> "Table":
        """Drop columns of numbers from the right, but keep three, until ``width`` is enough."""
        sizes = [max(len(line[i]) for line in [self.columns, *self.rows]) + 2 for i in range(len(self.columns))]
        count = len(sizes)
        while sum(sizes[:count]) > width - 2 and count > self.n_text + 3:
            count -= 1
        return Table(self.columns[:count], [row[:count] for row in self.rows], self.n_text)

    def to_rich(self) -> RichTable:
        """Return the table for a terminal."""
        table = RichTable(header_style="bold", box=SIMPLE_HEAD)
        for index, column in enumerate(self.columns):
            justify: Literal["left", "right"] = "left" if index < self.n_text else "right"
            table.add_column(Text(escape_control(column)), justify=justify, overflow="fold")
        for row in self.rows:
            table.add_row(*(Text(escape_control(cell)) for cell in row))
        return table


def escape_latex(text: str) -> str:
    r"""Escape text for LaTeX.

    Example:
        >>> escape_latex("50 % of a_b: 1 ± 2")
        '50 \\% of a\\_b: 1 $\\pm$ 2'
    """
    return "".join(_LATEX.get(char, char) for char in re.sub(r"\s*\n\s*", " ", escape_control(text)))


def result_table(results: Results) -> Table:
    """Return accuracies, training time and parameters of every training configuration.

    Configurations without records are left out beside a table of published numbers.
    """
    titles = [_AXIS_TITLES.get(axis, axis) for axis in results.axes]
    compared = results.manifest is not None and results.manifest.published is not None
    groups = [group for group in results.groups if group.records or not compared]
    verdicts = compare_with_best(groups)
    # Records without stored predictions have no paired test.
    tested = ("95 % interval", "against the best") if any(verdicts) else ()
    columns = ("test %", *tested, "val %", "runs", "training s", "parameters")
    rows = []
    for group, verdict in zip(groups, verdicts, strict=True):
        accuracy, *others = _numbers(group)
        compared_with = (_interval(group), MISSING if verdict is None else verdict.text) if tested else ()
        rows.append((*group.labels, accuracy, *compared_with, *others))
    return Table((*titles, *columns), rows, n_text=len(titles))


def _interval(group: Group) -> str:
    if not group.finished:
        return MISSING
    _, low, high = group.accuracy_interval
    return f"{low:.1f} – {high:.1f}"


def _numbers(group: Group) -> tuple[str, ...]:
    done = group.finished
    seeds = f"{len(done)}" if len(done) >= group.expected else f"{len(done)} of {group.expected}"
    if not done:
        states = [record["status"] for record in group.records]
        state = "failed" if "failed" in states else "unfinished" if states else MISSING
        return (state, MISSING, seeds, MISSING, MISSING)
    return (
        plus_minus([100 * record["accuracy"]["test"] for record in done]),
        plus_minus([100 * record["accuracy"]["val"] for record in done if "val" in record["accuracy"]]),
        seeds,
        plus_minus([sum(row["seconds"] for row in record["epochs"]) for record in done]),
        f"{done[-1]['parameters']['total']:,}",
    )


def plus_minus(values: Sequence[float]) -> str:
    """Format ``mean ± std`` of several values, the value itself of one, "—" of none.

    Example:
        >>> plus_minus([1.0, 2.0, 3.0]), plus_minus([2.0]), plus_minus([])
        ('2.0 ± 1.0', '2.0', '—')
    """
    if not values:
        return MISSING
    mean, std, _ = mean_std(values)
    return f"{mean:.1f}" if math.isnan(std) else f"{mean:.1f} ± {std:.1f}"
