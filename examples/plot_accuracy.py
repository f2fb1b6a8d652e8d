"""Partial correlation against iSQRT-COV on photographs of birds

CUB-200-2011, VGG-16, 256 channels. Left: test accuracy of three seeds, the line is their mean.
Middle: accuracy on training images that were held out, with the first three blocks frozen; the
settings of partial correlation were confirmed here. Right: the training step of ResNet-50 at
448 px relative to average pooling. All numbers are read from the records;
[accuracy](accuracy.md) has them as tables.

Usage: python examples/plot_accuracy.py [figure.png]
"""

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt

from isice.report.theme import colour_of, style

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results"
POOLINGS = {"isqrt_cov": "iSQRT-COV", "partial_correlation": "partial correlation"}
SIZES = (224, 448)
SETTINGS = {
    "iSQRT-COV": "iSQRT-COV",
    "partial correlation": "ridge 10, × 5 (default)",
    "… × 2.5": "ridge 10, × 2.5",
    "… ridge 3, × 3": "ridge 3, × 3",
    "… ridge 30, × 10": "ridge 30, × 10",
    "… centred": "ridge 10, × 5, centred",
}


def read(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def draw_seeds(ax: plt.Axes) -> None:
    for column, size in enumerate(SIZES):
        found = defaultdict(list)
        for file in (RESULTS / f"shrinkage_vgg16_cub200_{size}" / "short").glob("*/record.json"):
            record = json.loads(file.read_text(encoding="utf-8"))
            found[record["config"]["model"]["pooling"]].append(100 * record["accuracy"]["test"])
        for index, (pooling, label) in enumerate(POOLINGS.items()):
            x, values = column + 0.3 * index - 0.15, found[pooling]
            mean = sum(values) / len(values)
            ax.plot([x - 0.1, x + 0.1], [mean, mean], color=colour_of(index), linewidth=2)
            ax.plot([x] * len(values), values, "o", color=colour_of(index), label=label if column == 0 else None)
    ax.set_xticks(range(len(SIZES)), [f"{size} px" for size in SIZES])
    ax.set(xlim=(-0.6, len(SIZES) - 0.4), ylabel="%", title="test accuracy, three seeds")
    ax.legend(fontsize=9)


def draw_settings(ax: plt.Axes) -> None:
    found = defaultdict(list)
    for row in read("frozen_blocks_h200.json")["rows"]:
        found[row["label"]].append(100 * row["accuracy"])
    for row, label in enumerate(SETTINGS):
        values = found[label]
        ax.plot(values, [row] * len(values), "o", color=colour_of(int(row > 0)))
    ax.set_yticks(range(len(SETTINGS)), list(SETTINGS.values()))
    ax.set(ylim=(len(SETTINGS) - 0.5, -0.5), xlabel="%", title="held-out accuracy")


def draw_cost(ax: plt.Axes) -> None:
    rows = read("training_step_partial_correlation_h200.json")["rows"]
    labels = {"gap": "average", **POOLINGS, "isice": "iSICE"}
    ratios = {labels[row["head"]]: row["ratio_to_gap"] for row in rows}
    ax.barh(list(ratios), [ratio - 1 for ratio in ratios.values()], left=1, color=colour_of(2))
    for row, ratio in enumerate(ratios.values()):
        ax.annotate(f"{ratio:.3f}", (ratio, row), (4, 0), textcoords="offset points", va="center", fontsize=9)
    ax.set(xlim=(1, 1.1), title="training step ÷ average pooling")
    ax.invert_yaxis()


def main(out: str) -> None:
    with mpl.rc_context(style()):
        figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), dpi=110, layout="constrained")
        for ax, draw in zip(axes, (draw_seeds, draw_settings, draw_cost), strict=True):
            draw(ax)
        figure.savefig(out)
    print(f"wrote {out}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "accuracy.png")
