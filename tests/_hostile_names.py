"""Names of classes, runs and titles that look like markup; every output shows them as they are."""

HOSTILE = (
    r"$\frac{1$",  # matplotlib's formulas
    "$x$ costs $",
    r"\$",
    "_hidden",  # left out of matplotlib's legends
    "[/red]",  # rich's markup
    "[ours]",
    "[bold]loud[/bold]",
    ":smiley:",
    "\x1b[31mred",  # escape sequences of a terminal
    "\u202etxet",
    "<script>alert(1)</script>",  # HTML
    "<img src=x onerror=alert(1)>",
    "&amp; &lt;",
    "![x](http://attacker.invalid/x.png)",  # Markdown
    "[link](http://attacker.invalid)",
    "a|b",
    "`code` ``",
    "*star* **bold** __init__",
    "# heading",
    "line\nbreak",
    "[",  # LaTeX
    "*",
    r"\input{secret}",
    "100 % & #1 ~ ^ {x}",
    "{{ 7 * 7 }} {% raw %}",  # templates
    "%s {0} {name}",
    "--help",
    "../../outside",  # file names
    "/outside",
    "名前 🦉",
    "x" * 120,
)
