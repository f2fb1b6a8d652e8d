"""LaTeX: everything special is escaped, and the table is complete."""

import re

from isice.report.tables import Table, escape_latex


def test_special_characters():
    assert escape_latex(r"a&b%c$d#e_f{g}~^\ ") == (
        r"a\&b\%c\$d\#e\_f\{g\}\textasciitilde{}\textasciicircum{}\textbackslash{} "
    )
    assert escape_latex("Ω, λ = 1, η ± 2 − 3 — 256×256 ÷ ‖P‖ ᵃ") == (
        r"$\Omega$, $\lambda$ = 1, $\eta$ $\pm$ 2 $-$ 3 --- 256$\times$256 $\div$ $\|$P$\|$ \textsuperscript{a}"
    )


def test_all_texts_of_the_paper_become_ascii():
    from isice.experiments.loader import list_experiments, load_experiment
    from isice.experiments.manifest import describe
    from isice.report.comparison import compare

    for name in list_experiments():
        experiment = load_experiment(name)
        for comparison in compare(describe(experiment), []):
            text = comparison.to_table().to_latex(" ".join([experiment.title, comparison.title, *comparison.notes]))
            assert text.isascii(), (name, re.findall(r"[^\x00-\x7f]", text))


def test_a_table():
    lines = Table(("a_b", "n"), [("x", "1"), ("y", "2")], 1).to_latex("50 %").splitlines()
    assert lines[0] == r"% needs \usepackage{booktabs}"
    assert r"\begin{tabular}{lr}" in lines
    assert r"a\_b & n \\" in lines
    assert r"y & 2 \\" in lines
    assert r"\caption{50 \%}" in lines
    assert lines[-1] == r"\end{table}"
