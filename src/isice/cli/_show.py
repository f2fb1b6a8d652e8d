"""What the commands ``run``, ``report`` and ``bench`` share: reports of folders of runs, printed and written."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ._app import console, tell

if TYPE_CHECKING:
    from ..experiments.manifest import Manifest

RUNS = Path("runs")
# As many networks as fit side by side.
MOST_NETWORKS = 8

Limit = Annotated[
    list[str] | None,
    typer.Option("--limit", metavar="AXIS=VALUE,…", help="Only these values of an axis; repeatable."),
]


def show_report(
    folder: Path, manifest: "Manifest | None" = None, limits: Mapping[str, Collection[str]] | None = None
) -> None:
    """Prints the tables of a folder of runs and writes its report."""
    from ..report import write_report
    from ..report.report_page import build_report
    from ..report.results import load_results

    report = build_report(load_results(folder, manifest), limits)
    paths = write_report(folder, manifest, limits)
    for comparison in report.comparisons:
        tell(comparison.title, style="bold")
        for part in comparison.split_columns(console.width):
            console.print(part.to_table().to_rich())
        for note in comparison.notes:
            tell(note)
    if report.table is not None:
        console.print(report.table.to_rich())
    for remark in report.remarks:
        tell(remark)
    for label, message in report.failures:
        tell(f"{label} failed: {message}", style="red")
    for path in paths.values():
        tell(f"wrote {path}")


def draw_heat_maps(folder: Path, manifest: "Manifest | None", count: int, *, asked: bool = False) -> None:
    """Heat maps of ``count`` test images for the page, of one finished run per configuration.

    Where weights or data are gone there are none, and a line says why; if they were ``asked`` for that is an error.
    """
    from ..report.explain_page import HEAT_MAPS
    from ..report.results import load_results

    if count == 0:
        return
    groups = load_results(folder, manifest).groups
    runs = [Path(group.finished[0]["folder"]) for group in groups if group.finished]
    from ..explain import explain_samples

    try:
        explain_samples([run for run in runs if has_weights(run)][:MOST_NETWORKS], folder / HEAT_MAPS, count)
    except (ValueError, OSError) as error:
        if asked:
            raise
        tell(f"no heat maps: {error}")


def has_weights(run: Path) -> bool:
    """Whether the network of a run was kept."""
    return (run / "checkpoints").is_dir()


def is_unseen_run(folder: Path) -> bool:
    """Whether this is the folder of one run, with its network, for which no heat maps have been made."""
    from ..report.explain_page import find_heat_maps

    return (folder / "record.json").is_file() and has_weights(folder) and not find_heat_maps(folder)
