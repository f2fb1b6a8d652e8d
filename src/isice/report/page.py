"""The report of a folder of runs: ``report.md`` and a self-contained ``report.html``."""

import base64
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from .plots import draw_all
from .tables import Results, flatten, load_results, result_table

_FIGURES = "figures"


def write_report(folder: str | Path) -> dict[str, Path]:
    """Writes ``report.md``, ``report.html`` and the pictures into ``folder``, from the records found there.

    Returns:
        The paths, by ``"markdown"`` and ``"html"``.
    """
    folder = Path(folder)
    results = load_results(folder)
    pictures = draw_all(results, folder / _FIGURES)
    markdown, html = folder / "report.md", folder / "report.html"
    markdown.write_text(_markdown(results, pictures), encoding="utf-8")
    html.write_text(_html(results, pictures, folder / _FIGURES), encoding="utf-8")
    return {"markdown": markdown, "html": html}


def environment(results: Results) -> dict[str, str]:
    """What the runs were computed with; several answers are listed side by side."""
    rows: dict[str, list[str]] = {}
    for record in results.records:
        facts = {"commit": record["commit"], **record["hardware"], **record["versions"]}
        facts["runs started"] = record["started"][:10]
        for name, value in facts.items():
            if value is not None and str(value) not in rows.setdefault(name, []):
                rows[name].append(str(value))
    return {name: ", ".join(values) for name, values in rows.items() if values}


def settings(results: Results) -> dict[str, Any]:
    """The settings that all runs share."""
    configs = [flatten(record["config"]) for record in results.records]
    shared = {key: value for key, value in configs[0].items() if all(config.get(key) == value for config in configs)}
    return {key: "none" if value is None else value for key, value in shared.items()}


def failures(results: Results) -> list[tuple[str, str]]:
    """Label and message of every failed run."""
    return [
        (f"{group.label} (seed {record['seed']})", record["error"])
        for group in results.groups
        for record in group.records
        if record["status"] == "failed"
    ]


def _markdown(results: Results, pictures: dict[str, str]) -> str:
    parts = [f"# {results.title}\n"]
    parts += [f"{results.description}\n"] if results.description else []
    parts.append(result_table(results).to_markdown())
    parts += [f"**Failed:** {label}: `{message}`\n" for label, message in failures(results)]
    parts += [f"![{stem}]({_FIGURES}/{stem}.png)\n\n*{caption}*\n" for stem, caption in pictures.items()]
    for title, facts in {"Settings": settings(results), "Environment": environment(results)}.items():
        parts.append(f"## {title}\n\n" + "".join(f"- {name}: {value}\n" for name, value in facts.items()))
    return "\n".join(parts)


def _html(results: Results, pictures: dict[str, str], figures: Path) -> str:
    loader = PackageLoader("isice.report", ".")
    template = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return template.get_template("page.html.jinja").render(
        title=results.title,
        description=results.description,
        table=result_table(results),
        failures=failures(results),
        pictures=[
            {
                "name": stem,
                "caption": caption,
                "light": _data_uri(figures / f"{stem}.png"),
                "dark": _data_uri(figures / f"{stem}-dark.png"),
            }
            for stem, caption in pictures.items()
        ],
        facts={"Settings": settings(results), "Environment": environment(results)},
    )


def _data_uri(path: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
