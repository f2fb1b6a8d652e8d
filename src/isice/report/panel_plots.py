"""Accuracies of an experiment with one panel per task and one row per method."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .results import Group, Results
from .significance import compare_with_best
from .theme import colour_of, draw_interval

MAX_ROWS = 12


def panels_figure(results: Results, *, narrow: bool = False) -> Figure | None:
    """Draw accuracies with 95 % intervals, one panel per value of ``plot.panels``.

    None without such a plot or accuracies. ``narrow`` stacks the panels, for phones.
    """
    panels = _panels(results)
    rows = {label for members in panels.values() for label in members}
    if not panels or len(rows) > MAX_ROWS:
        return None
    order = list(dict.fromkeys(label for members in panels.values() for label in members))
    shape = (len(panels), 1) if narrow else (1, len(panels))
    height = 0.9 + 0.42 * len(order)
    size = (4.4, height * len(panels)) if narrow else (3.1 * len(panels) + 1.2, height + 0.4)
    figure = Figure(figsize=size, dpi=160)
    grid = figure.subplots(*shape, squeeze=False, sharey=True).ravel()
    for axes, (title, members) in zip(grid, panels.items(), strict=True):
        _draw(axes, members, order)
        axes.set_title(title)
    grid[0].set_yticks(range(len(order)), order)
    grid[0].set_ylim(len(order) - 0.5, -0.7)
    figure.supxlabel("test accuracy (%)", fontsize=10.5)
    return figure


def panels_caption(results: Results) -> str:
    """Describe :func:`panels_figure`: the experiment's own text, then what was measured."""
    caption = results.manifest.plot.get("caption", "") if results.manifest is not None else ""
    own = " ".join(str(caption).split())
    found = [_measured(title, members) for title, members in _panels(results).items()]
    key = "Dots: share of test images classified correctly; bars: 95 % intervals; dashed: guessing."
    return " ".join(filter(None, [own, "Measured here: " + " ".join(found), key]))


def has_panels(results: Results) -> bool:
    """Return whether an experiment compares methods on several tasks."""
    return bool(_panels(results))


def _panels(results: Results) -> dict[str, dict[str, Group]]:
    """Return title → label → configuration, in the order of the experiment."""
    manifest = results.manifest
    if manifest is None or manifest.kind != "train" or manifest.published is not None:
        return {}
    wanted = (manifest.plot.get("panels"), manifest.plot.get("x"))
    if not set(wanted) <= set(results.axes):
        return {}
    across, down = (results.axes.index(str(axis)) for axis in wanted)
    found: dict[str, dict[str, Group]] = {}
    for group in results.groups:
        if any("accuracy" in record for record in group.finished):
            found.setdefault(group.labels[across], {})[group.labels[down]] = group
    return found


def _draw(axes: Axes, members: dict[str, Group], order: list[str]) -> None:
    for label, group in members.items():
        row = order.index(label)
        draw_interval(axes, row, *group.accuracy_interval, colour_of(row))
    evaluations = next(iter(members.values())).evaluations
    if evaluations:  # guessing, for classes of equal size
        axes.axvline(100 / len(evaluations[0]["classes"]), color="#808890", linestyle=(0, (3, 2)), linewidth=1)
    axes.set(xlim=(0, 108), xticks=(0, 25, 50, 75, 100))
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)


def _measured(title: str, members: dict[str, Group]) -> str:
    """Return one sentence with the methods of a task, those significantly below the best apart."""
    numbers = {label: group.accuracy_interval[0] for label, group in members.items()}
    verdicts = compare_with_best(list(members.values()))
    worse = [label for label, verdict in zip(members, verdicts, strict=True) if verdict and verdict.significant]
    texts = {label: f"{label} {number:.1f} %" for label, number in numbers.items()}
    best = ", ".join(text for label, text in texts.items() if label not in worse)
    lower = ", ".join(texts[label] for label in worse)
    return f"“{title}”: {best}" + (f"; significantly lower: {lower}." if worse else ".")
