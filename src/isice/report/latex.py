"""Tables for LaTeX: escaped text and the rules of booktabs."""

from collections.abc import Sequence

_ESCAPES = {
    **{char: f"\\{char}" for char in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{
        "±": r"$\pm$",
        "−": "$-$",
        "—": "---",
        "–": "--",
        "×": r"$\times$",
        "÷": r"$\div$",
        "≥": r"$\ge$",
        "≤": r"$\le$",
    },
    **{
        "λ": r"$\lambda$",
        "η": r"$\eta$",
        "Ω": r"$\Omega$",
        "Σ": r"$\Sigma$",
        "∇": r"$\nabla$",
        "‖": r"$\|$",
        "→": r"$\to$",
    },
    **{"₁": r"$_1$", "²": r"$^2$", "\u0302": r"\^{}", "√": r"$\surd$", "…": r"\dots{}"},
    **{mark: f"\\textsuperscript{{{letter}}}" for mark, letter in zip("ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐ", "abcdefghijklm", strict=True)},
}


def escape(text: str) -> str:
    r"""Text as LaTeX prints it.

    Example:
        >>> escape("50 % of a_b: 1 ± 2")
        '50 \\% of a\\_b: 1 $\\pm$ 2'
    """
    return "".join(_ESCAPES.get(char, char) for char in text)


def to_latex(columns: Sequence[str], rows: Sequence[Sequence[str]], n_text: int, caption: str = "") -> str:
    """A ``table`` environment: words to the left, numbers to the right."""
    lines = [
        "% needs \\usepackage{booktabs}",
        "\\begin{table}",
        "\\centering",
        f"\\begin{{tabular}}{{{'l' * n_text}{'r' * (len(columns) - n_text)}}}",
        "\\toprule",
        *_lines([columns]),
        "\\midrule",
        *_lines(rows),
        "\\bottomrule",
        "\\end{tabular}",
        *([f"\\caption{{{escape(caption)}}}"] if caption else []),
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _lines(rows: Sequence[Sequence[str]]) -> list[str]:
    return [" & ".join(escape(cell) for cell in row) + r" \\" for row in rows]
