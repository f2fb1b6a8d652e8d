"""The report of a folder of runs: ``report.md``, ``report.tex`` and a self-contained ``report.html``."""

import base64
import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from ..experiments.axes import flatten
from ..experiments.manifest import Manifest
from .comparison import Comparison, Limits, compare
from .explain_page import MAPS_CAPTION
from .pictures import draw_all, explained
from .tables import Results, Table, load_results, result_table

_FIGURES = "figures"


def write_report(folder: str | Path, manifest: Manifest | None = None, limits: Limits | None = None) -> dict[str, Path]:
    """Writes ``report.md``, ``report.tex``, ``report.html`` and the pictures into ``folder``, from records alone.

    Args:
        folder: A folder of runs, or of one run.
        manifest: The experiment; by default what the folder's own ``experiment.json`` says.
        limits: Values (axis → values) to which the tables are limited.

    Returns:
        The paths, by ``"markdown"``, ``"latex"`` and ``"html"``.
    """
    folder = Path(folder)
    results = load_results(folder, manifest)
    folder.mkdir(parents=True, exist_ok=True)
    pictures = draw_all(results, folder / _FIGURES)
    compared = comparisons(results, limits)
    texts = {
        "markdown": ("report.md", _markdown(results, compared, pictures, folder)),
        "latex": ("report.tex", _latex(results, compared)),
        "html": ("report.html", _html(results, compared, pictures, folder)),
    }
    for name, text in texts.values():
        (folder / name).write_text(text, encoding="utf-8")
    return {kind: folder / name for kind, (name, _) in texts.items()}


def comparisons(results: Results, limits: Limits | None = None) -> list[Comparison]:
    """The tables of an experiment with printed numbers, or of measurements; none for plain training runs."""
    manifest = results.manifest
    if manifest is None or (manifest.printed is None and manifest.kind == "train"):
        return []
    return compare(manifest, results.records, limits)


def run_table(results: Results) -> Table | None:
    """The table of training runs; None if there are none to show."""
    trained = results.manifest is None or results.manifest.kind == "train"
    table = result_table(results) if trained and _comparable(results) else None
    return table if table is not None and table.rows else None


def _comparable(results: Results) -> bool:
    return all(record.get("kind", "train") == "train" for record in results.records)


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
    if not configs:
        return {}
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


def remarks(results: Results) -> list[str]:
    """What a reader of the numbers has to know: departures from the file, and what can be done next."""
    manifest = results.manifest
    if manifest is None:
        listed = ", ".join(results.apart)
        return [f"Experiments in this folder have reports of their own: {listed}."] if listed else []
    changed = [f"Run with other settings than the file's: {', '.join(manifest.changed)}."] if manifest.changed else []
    return changed + ([manifest.after] if manifest.after else [])


def _facts(results: Results) -> dict[str, dict[str, Any]]:
    facts = {"Settings": settings(results), "Environment": environment(results)}
    return {title: entries for title, entries in facts.items() if entries}


def _markdown(results: Results, compared: list[Comparison], pictures: dict[str, str], folder: Path) -> str:
    parts = [f"# {results.title}\n"]
    parts += [f"{results.description}\n"] if results.description else []
    parts += [f"{remark}\n" for remark in remarks(results)]
    for comparison in compared:
        parts.append(f"## {comparison.title}\n\n{comparison.to_table().to_markdown()}")
        parts += [f"{note}\n" for note in comparison.notes]
    table = run_table(results)
    parts += [table.to_markdown()] if table is not None else []
    parts += [f"**Failed:** {label}: `{message}`\n" for label, message in failures(results)]
    parts += [f"![{stem}]({_FIGURES}/{stem}.png)\n\n*{caption}*\n" for stem, caption in pictures.items()]
    heat = [(light.relative_to(folder).as_posix(), _heat_caption(light)) for light, _ in explained(folder)]
    parts += [f"![heat maps]({path})\n\n*{caption}*\n" for path, caption in heat]
    for title, facts in _facts(results).items():
        parts.append(f"## {title}\n\n" + "".join(f"- {name}: {value}\n" for name, value in facts.items()))
    return "\n".join(parts)


def _latex(results: Results, compared: list[Comparison]) -> str:
    table = run_table(results)
    parts = [comparison.to_table().to_latex(_caption(results, comparison)) for comparison in compared]
    parts += [table.to_latex(results.title)] if table is not None else []
    return "\n".join(parts)


def _caption(results: Results, comparison: Comparison) -> str:
    return " ".join([f"{results.title}. {comparison.title}.", *comparison.notes])


def _html(results: Results, compared: list[Comparison], pictures: dict[str, str], folder: Path) -> str:
    loader = PackageLoader("isice.report", ".")
    template = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    shown = [
        (stem, caption, folder / _FIGURES / f"{stem}.png", folder / _FIGURES / f"{stem}-dark.png")
        for stem, caption in pictures.items()
    ]
    shown += [("heat map", _heat_caption(light), light, dark) for light, dark in explained(folder)]
    return template.get_template("page.html.jinja").render(
        title=results.title,
        description=results.description,
        remarks=remarks(results),
        comparisons=compared,
        table=run_table(results),
        failures=failures(results),
        pictures=[
            {
                "name": name,
                "caption": caption,
                "light": _data_uri(light),
                "dark": _data_uri(dark if dark.is_file() else light),
            }
            for name, caption, light, dark in shown
        ],
        facts=_facts(results),
    )


def _heat_caption(picture: Path) -> str:
    """What ``01-test-7-maps.png`` shows of "test image 7"."""
    name = picture.stem.split("-", 1)[-1].removesuffix("-maps").replace("-", " ")
    return f"Heat maps of {re.sub(r'^test (?=[0-9]+$)', 'test image ', name)}. {MAPS_CAPTION}"


def _data_uri(path: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
