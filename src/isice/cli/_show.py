"""Print and write the report of a run folder or of a folder of runs; shared by several commands."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated

import typer

from ..experiments.manifest import Manifest
from ._app import console, tell

RUNS = Path("runs")
# Networks side by side in a figure.
MOST_NETWORKS = 8

Limit = Annotated[
    list[str] | None, typer.Option("--limit", metavar="AXIS=VALUE,…", help="Only these values of an axis; repeatable.")
]


def show_report(
    folder: Path, manifest: Manifest | None = None, limits: Mapping[str, Collection[str]] | None = None
) -> None:
    """Print the tables of a folder of runs and write its report."""
    from ..report.report_page import build_report, write_built_report
    from ..report.results import load_results

    results = load_results(folder, manifest)
    report = build_report(results, limits)
    paths = write_built_report(folder, results, report)
    for comparison in report.comparisons:
        tell(comparison.title, style="bold")
        for part in comparison.split_columns(console.width):
            console.print(part.to_table().to_rich())
        for note in comparison.notes:
            tell(note)
    if report.table is not None:
        console.print(report.table.fit(console.width).to_rich())
    if report.table_note:
        tell(report.table_note)
    for remark in report.remarks:
        tell(remark)
    for label, message in report.failures:
        tell(f"{label} failed: {message}", style="red")
    for path in paths.values():
        tell(f"wrote {path}")


def draw_heat_maps(folder: Path, manifest: Manifest | None, count: int, *, asked: bool = False) -> None:
    """Draw heat maps of ``count`` test images, with one finished run per configuration.

    Missing weights or data are reported, not fatal, unless the user ``asked`` for heat maps.
    """
    from ..report.explain_page import HEAT_MAPS, write_explanations
    from ..report.results import load_results

    if count == 0:
        return
    groups = load_results(folder, manifest).groups
    runs = [Path(group.finished[0]["folder"]) for group in groups if group.finished]
    from ..explain import explain_samples

    try:
        explained = explain_samples([run for run in runs if has_weights(run)][:MOST_NETWORKS], count)
        write_explanations(explained, folder / HEAT_MAPS, graphs=False)
    except (ValueError, OSError) as error:
        if asked:
            raise
        tell(f"no heat maps: {error}")


def has_weights(run: Path) -> bool:
    """Return whether a run folder has checkpoints."""
    return (run / "checkpoints").is_dir()


def lacks_heat_maps(folder: Path) -> bool:
    """Return whether a folder is one run with checkpoints and without heat maps."""
    from ..report.explain_page import find_heat_maps

    return (folder / "record.json").is_file() and has_weights(folder) and not find_heat_maps(folder)
