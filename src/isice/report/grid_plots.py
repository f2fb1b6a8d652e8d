"""Results over an axis of an experiment: lines over numbers, bars over names."""

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator

from ..experiments.manifest import Manifest
from ..experiments.published_numbers import METRIC, Metric, value_of
from .comparison import paper_number
from .measured_numbers import MeasuredNumbers, Place
from .panel_plots import has_panels
from .results import Results
from .theme import colour_of, legend_label


def grid_figure(results: Results) -> Figure | None:
    """Draw the figure that the experiment's table ``[plot]`` describes; None without results."""
    manifest = results.manifest
    if manifest is None or not manifest.plot or manifest.plot["x"] not in manifest.axes or has_panels(results):
        return None
    measured = MeasuredNumbers(manifest, results.records)
    x, metric = manifest.plot["x"], _metric(manifest)
    panels = _values(manifest, manifest.plot.get("panels"))
    places: list[Place] = [{manifest.plot["panels"]: panel} for panel in panels] if panels else [{}]
    if not any(measured.find(cell.at, metric) for cell in manifest.cells):
        return None
    numeric = [value for value in _values(manifest, x) if _is_number(value)]
    if not numeric:
        return _bars(measured, metric)
    figure = Figure(figsize=(4.6 * len(places) + 0.8, 3.9), dpi=160)
    for axes, place in zip(figure.subplots(1, len(places), squeeze=False, sharey=True)[0], places, strict=True):
        _lines(axes, measured, metric, place, numeric)
        axes.set_title(" ".join(f"{axis} {manifest.axes[axis][value]}" for axis, value in place.items()))
    figure.axes[0].set_ylabel(metric.label)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    if len(labels) > 1:
        figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 6))
    return figure


def grid_caption(results: Results) -> str:
    """Describe :func:`grid_figure`."""
    manifest = results.manifest
    if manifest is None or not manifest.plot:
        return ""
    paper = " Hollow and dashed: the paper's numbers." if manifest.published is not None else ""
    return f"{_metric(manifest).label}, ours: mean over runs, bars ± one standard deviation.{paper}"


def _lines(axes: Axes, measured: MeasuredNumbers, metric: Metric, place: Place, xs: list[str]) -> None:
    manifest, plot = measured.manifest, measured.manifest.plot
    for index, line in enumerate(_values(manifest, plot.get("lines")) or [""]):
        at = place | ({plot["lines"]: line} if line else {})
        label, colour = (manifest.axes[plot["lines"]][line] if line else "ours"), colour_of(index)
        found = [(float(x), ours) for x in xs if (ours := measured.find(at | {plot["x"]: x}, metric)) is not None]
        if found:
            spread = [0.0 if math.isnan(ours.std) else ours.std for _, ours in found]
            axes.errorbar(
                [x for x, _ in found], [ours.mean for _, ours in found], spread,
                color=colour, label=legend_label(label), marker="o", markersize=4, linewidth=1.8, capsize=3,
            )  # fmt: skip
        theirs = [(float(x), text) for x in xs if (text := _paper(manifest, at | {plot["x"]: x}, metric))]
        axes.plot(
            [x for x, _ in theirs], [value_of(text) for _, text in theirs],
            color=colour, linestyle=(0, (2, 2)), marker="o", markersize=4, markerfacecolor="none", linewidth=1,
        )  # fmt: skip
    log = plot.get("log", ())
    axes.set(xscale="log" if "x" in log else "linear", yscale="log" if "y" in log else "linear", xlabel=plot["x"])
    axes.set_xticks([float(x) for x in xs], [f"{float(x):g}" for x in xs], rotation=45 if len(xs) > 5 else 0)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())


def _bars(measured: MeasuredNumbers, metric: Metric) -> Figure:
    manifest, x = measured.manifest, measured.manifest.plot["x"]
    names = _values(manifest, x)
    figure = Figure(figsize=(7.2, 0.9 + 0.45 * len(names)), dpi=160)
    axes = figure.subplots()
    for row, name in enumerate(names):
        ours, paper = measured.find({x: name}, metric), _paper(manifest, {x: name}, metric)
        if ours is not None:
            axes.barh(row, ours.mean, color=colour_of(0), height=0.55, label="ours" if row == 0 else None)
            axes.annotate(
                f"{ours.mean:.{metric.digits}f}", (ours.mean, row), (4, 0), textcoords="offset points", va="center"
            )
        if paper is not None:
            label = "paper" if row == 0 else None
            axes.plot(value_of(paper), row, "D", color=colour_of(1), markerfacecolor="none", label=label)
    axes.set_yticks(range(len(names)), [manifest.axes[x][name] for name in names])
    axes.set(ylim=(len(names) - 0.4, -0.6), xlabel=metric.label)
    axes.grid(visible=False, axis="y")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


def _metric(manifest: Manifest) -> Metric:
    wanted = manifest.plot.get("metric", manifest.metrics[0].name)
    return next(metric for metric in manifest.metrics if metric.name == wanted)


def _paper(manifest: Manifest, place: Place, metric: Metric) -> str | None:
    published = manifest.published
    full = place | {METRIC: metric.name}
    if published is None or not set(published.axes) <= full.keys():
        return None
    return paper_number(full, metric, published)


def _values(manifest: Manifest, axis: str | None) -> list[str]:
    """Return the values of an axis without aggregates."""
    computed = {aggregate.name for aggregate in manifest.aggregates if aggregate.axis == axis}
    return [value for value in manifest.axes.get(axis or "", {}) if value not in computed]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
