"""Accuracies and learning curves of training runs."""

from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, MaxNLocator, NullLocator

from ..metrics import mean_std
from .panel_plots import has_panels
from .results import Group, Results
from .text_wrap import wrap_text
from .theme import colour_of, draw_interval, legend_label

MAX_DOTS, MAX_CURVES = 40, 14
CURVES_CAPTION = "Training loss and accuracy by epoch; means over seeds. Dashed: training accuracy."


def _trained(results: Results) -> list[tuple[int, Group]]:
    """Return the configurations with a trained network, numbered."""
    groups = [group for group in results.groups if any("accuracy" in record for record in group.finished)]
    return list(enumerate(groups))


def accuracy_figure(results: Results) -> Figure | None:
    """Draw the accuracy of every configuration; None without any, or with too many."""
    groups = _trained(results)
    if not groups or len(groups) > MAX_DOTS or has_panels(results):
        return None
    figure = Figure(figsize=(7.2, 0.9 + 0.45 * len(groups)), dpi=160)
    axes = figure.subplots()
    for row, (index, group) in enumerate(groups):
        draw_interval(axes, row, *_interval(group), colour_of(index))
    axes.set_yticks(range(len(groups)), ["\n".join(wrap_text(group.label, 240, size=10.5)) for _, group in groups])
    axes.set_ylim(len(groups) - 0.5, -0.7)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.set_xlabel("test accuracy (%)")
    return figure


def _interval(group: Group) -> tuple[float, float, float]:
    """Return accuracy in percent and its bounds: ± std over seeds, or a sampling interval."""
    mean, std, n = mean_std([100 * record["accuracy"]["test"] for record in group.finished])
    return (mean, mean - std, mean + std) if n > 1 else group.accuracy_interval


def accuracy_caption(results: Results) -> str:
    """Describe :func:`accuracy_figure`."""
    done = [record for _, group in _trained(results) for record in group.finished]
    if not done:
        return ""
    counts = {record["images"]["test"] for record in done}
    images = f"{counts.pop():,} test images" if len(counts) == 1 else "the test images"
    if all(len(group.finished) <= 1 for group in results.groups):
        return (
            f"Accuracy on {images}, one seed. Bars: 95 % sampling interval; overlapping bars mean no clear difference."
        )
    return f"Accuracy on {images}, mean over seeds. Bars: ± one standard deviation over seeds."


def curves_figure(results: Results) -> Figure | None:
    """Draw loss and accuracy by epoch; None without curves, or with too many to tell apart."""
    groups = [(place, group) for place, group in _trained(results) if "epochs" in group.finished[0]]
    if not groups or len(groups) > MAX_CURVES:
        return None
    figure = Figure(figsize=(9.0, 3.6), dpi=160)
    left, right = figure.subplots(1, 2)
    for index, group in groups:
        colour = colour_of(index)
        left.plot(*_mean_curve(group, "train_loss"), color=colour, label=legend_label(group.label), linewidth=1.8)
        right.plot(*_mean_curve(group, "train_accuracy", 100), color=colour, linestyle=(0, (2, 2)), linewidth=1.1)
        right.plot(
            *_mean_curve(group, "val_accuracy", 100), color=colour, label=legend_label(group.label), linewidth=1.8
        )
    left.set(title="training loss", xlabel="epoch", yscale="log")
    left.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    left.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    left.yaxis.set_minor_locator(NullLocator())
    has_val = any("val_accuracy" in record["epochs"][0] for _, group in groups for record in group.finished)
    right.set(title=f"{'validation' if has_val else 'training'} accuracy (%)", xlabel="epoch")
    for axes in (left, right):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.set_ylim(bottom=max(right.get_ylim()[0], 0), top=100.5)
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=min(len(groups), 6))
    return figure


def _mean_curve(group: Group, key: str, scale: float = 1.0) -> tuple[list[int], list[float]]:
    by_epoch: dict[int, list[float]] = {}
    for record in group.finished:
        for row in record["epochs"]:
            if key in row:
                by_epoch.setdefault(row["epoch"], []).append(scale * row[key])
    return list(by_epoch), [sum(values) / len(values) for values in by_epoch.values()]
