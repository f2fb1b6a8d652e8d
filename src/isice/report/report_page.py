"""The report of a folder of runs in Markdown, LaTeX and self-contained HTML."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .._atomic import write_atomically
from .._checks import first_of
from .._markup import code_span, escape_markdown
from .._tables import flatten
from ..experiments.manifest import Manifest
from .comparison import Comparison, Limits, compare
from .explain_page import find_heat_maps
from .figures import draw_figures
from .pages import Picture, render
from .results import Results, load_results
from .significance import TEST_NOTE
from .tables import Table, result_table


@dataclass(frozen=True)
class Report:
    """The text of a report, before formatting."""

    title: str
    description: str
    remarks: list[str]  # settings that were changed, and what can be done next
    comparisons: list[Comparison]  # tables of published numbers or of measurements
    table: Table | None  # of training runs
    table_note: str  # what the table's intervals and comparisons are; empty without them
    failures: list[tuple[str, str]]  # label and message of every failed run
    facts: dict[str, dict[str, Any]]  # shared settings and the environment of the runs, by heading
    caveats: list[str] = field(default_factory=list)  # remarks that a table alone must say, too


def write_report(folder: str | Path, manifest: Manifest | None = None, limits: Limits | None = None) -> dict[str, Path]:
    """Write ``report.md``, ``report.tex``, ``report.html`` and figures, from records alone.

    Args:
        folder: A folder of runs, or of one run.
        manifest: The experiment; by default the one in the folder's ``experiment.json``.
        limits: Axis → values to which the tables are limited.

    Returns:
        The paths, by ``"markdown"``, ``"latex"`` and ``"html"``.
    """
    results = load_results(folder, manifest)
    return write_built_report(Path(folder), results, build_report(results, limits))


def write_built_report(folder: Path, results: Results, report: Report) -> dict[str, Path]:
    """Write the files of a report made by :func:`build_report`, with their figures."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = [*draw_figures(results, folder / "figures"), *find_heat_maps(folder)]
    texts = {
        "markdown": ("report.md", report_markdown(report, pictures, folder)),
        "latex": ("report.tex", report_latex(report)),
        "html": ("report.html", render("report.html.jinja", report=report, title=report.title, pictures=pictures)),
    }
    for name, text in texts.values():
        write_atomically(folder / name, text)
    return {kind: folder / name for kind, (name, _) in texts.items()}


def build_report(results: Results, limits: Limits | None = None) -> Report:
    """Collect the text of a report."""
    facts = {"Settings": _shared_settings(results), "Environment": _environment(results)}
    table = _run_table(results)
    return Report(
        title=results.title,
        description=results.description,
        remarks=_chosen_on_test(results) + _plan_remarks(results),
        comparisons=_comparisons(results, limits),
        table=table,
        table_note=TEST_NOTE if table is not None and "against the best" in table.columns else "",
        failures=[
            (f"{group.label} (seed {record.get('seed')})", record["error"])
            for group in results.groups
            for record in group.records
            if record["status"] == "failed"
        ],
        facts={title: entries for title, entries in facts.items() if entries},
        caveats=_chosen_on_test(results) + (_schedules(results) if results.manifest is not None else []),
    )


def _comparisons(results: Results, limits: Limits | None) -> list[Comparison]:
    """Return the comparisons of an experiment.

    Sample images have none, nor have training runs without published numbers, which the table of
    runs shows.
    """
    manifest = results.manifest
    if manifest is None or manifest.kind == "samples" or (manifest.published is None and manifest.kind == "train"):
        return []
    return compare(manifest, results.records, limits or manifest.limits)


def _run_table(results: Results) -> Table | None:
    kinds = {record.get("kind", "train") for record in results.records}
    if results.manifest is not None:
        kinds.add(results.manifest.kind)
    table = result_table(results) if kinds <= {"train"} else None
    return table if table is not None and table.rows else None


def _environment(results: Results) -> dict[str, str]:
    """Return what the runs were computed with; different values are listed."""
    rows: dict[str, list[str]] = {}
    for record in results.records:
        facts = {"commit": record.get("commit"), **record.get("hardware", {}), **record.get("versions", {})}
        facts["runs started"] = record["started"][:10]
        for name, value in facts.items():
            if value is not None and str(value) not in rows.setdefault(name, []):
                rows[name].append(str(value))
    return {name: ", ".join(values) for name, values in rows.items() if values}


def _shared_settings(results: Results) -> dict[str, Any]:
    configs = [flatten(record["config"]) for record in results.records]
    if not configs:
        return {}
    shared = {key: value for key, value in configs[0].items() if all(config.get(key) == value for config in configs)}
    return {key: "none" if value is None else value for key, value in shared.items()}


def _chosen_on_test(results: Results) -> list[str]:
    """Say which accuracies are optimistic because the test images chose the epoch."""
    runs = [record for record in results.records if record["config"].get("select_on") == "test"]
    if not runs:
        return []
    return [
        f"In {len(runs)} of {len(results.records)} runs the reported epoch is the best one on the test part, as asked "
        "for; these accuracies are optimistic."
    ]


def _plan_remarks(results: Results) -> list[str]:
    manifest = results.manifest
    if manifest is None:
        listed = ", ".join(results.apart)
        return [f"Experiments in this folder have their own reports: {listed}."] if listed else []
    changed = [f"Settings changed from the file: {', '.join(manifest.changed)}."] if manifest.changed else []
    return changed + _schedules(results) + ([manifest.after] if manifest.after else [])


def _schedules(results: Results) -> list[str]:
    """Say how runs were shorter than their recipe; name the rows unless all runs were alike."""
    done = [group for group in results.groups if group.finished]
    varying = [i for i in range(len(results.axes)) if len({group.labels[i] for group in done}) > 1]
    rows: dict[str | None, dict[str, None]] = {}
    for group in done:
        name = " ".join(group.labels[i] for i in varying) or group.label
        for record in group.finished:
            rows.setdefault(record.get("schedule"), {})[name] = None
    some = len(rows) > 1
    return [f"Schedule{f' of {first_of(names, 20)}' * some}: {text}." for text, names in rows.items() if text]


def report_markdown(report: Report, pictures: list[Picture], folder: Path) -> str:
    """Format a report as Markdown, with pictures relative to ``folder``."""
    parts = [f"# {escape_markdown(report.title)}\n"]
    parts += [f"{escape_markdown(report.description)}\n"] if report.description else []
    parts += [f"{escape_markdown(remark)}\n" for remark in report.remarks]
    for comparison in report.comparisons:
        parts.append(f"## {escape_markdown(comparison.title)}\n\n{comparison.to_table().to_markdown()}")
        parts += [f"{escape_markdown(note)}\n" for note in comparison.notes]
    parts += [_figure_markdown(picture, folder) for picture in pictures if picture.leads]
    parts += [report.table.to_markdown()] if report.table is not None else []
    parts += [f"{escape_markdown(report.table_note)}\n"] if report.table_note else []
    parts += [f"**Failed:** {escape_markdown(label)}: {code_span(message)}\n" for label, message in report.failures]
    parts += [_figure_markdown(picture, folder) for picture in pictures if not picture.leads]
    for title, facts in report.facts.items():
        entries = (f"- {escape_markdown(name)}: {escape_markdown(str(value))}\n" for name, value in facts.items())
        parts.append(f"## {title}\n\n" + "".join(entries))
    return "\n".join(parts)


def _figure_markdown(picture: Picture, folder: Path) -> str:
    address = quote(picture.path.relative_to(folder).as_posix())
    return f"![{escape_markdown(picture.name)}]({address})\n\n*{escape_markdown(picture.caption)}*\n"


def report_latex(report: Report) -> str:
    """Format the tables of a report for LaTeX."""
    parts = []
    for comparison in report.comparisons:
        caption = " ".join([f"{report.title}. {comparison.title}.", *comparison.notes, *report.caveats])
        parts.append(comparison.to_table().to_latex(caption))
    if report.table is not None:
        parts.append(report.table.to_latex(". ".join([report.title, *report.caveats])))
    return "\n".join(parts)
