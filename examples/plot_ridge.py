"""Which ridge is best for photographs of birds, on frozen features

A linear classifier on frozen features of VGG-16, fitted in closed form, so that neither a learning
rate nor the scale of the output matters; accuracy on training images of CUB-200-2011 that are held
out. Left: the ridge of partial correlation, with moments about zero and about the mean of each
channel; lines are other poolings. Right: a ridge of 10 without the division by the diagonal of the
inverse, and other functions of the eigenvalues; these differ by less than chance. All numbers are
from a record ([table](internals/linear_probe.md)).

Usage: python examples/plot_ridge.py [figure.png]
"""

import json
import re
import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

from isice.report.theme import colour_of, style

RECORD = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "linear_probe.json"
LINES = {"isqrt_cov": "iSQRT-COV", "covariance": "covariance", "isice": "iSICE"}
MAPS = {
    "partial_correlation(center=True, ridge=10)": "partial correlation",
    "spectral_map(ridge=10)": "x/(x + 10), not divided",
    "spectral_map(ridge=10, normalize='correlation')": "x/(x + 10), unit diagonal",
    "spectral_map(ridge=10, kind='log')": "log(1 + x/10)",
    "spectral_map(ridge=10, power=0.5)": "√x/(√x + 10)",
}


def read(measure: str) -> dict[str, dict[str, float]]:
    """Return an accuracy in percent of each group's poolings, for 256 channels."""
    found: dict[str, dict[str, float]] = {}
    for row in json.loads(RECORD.read_text(encoding="utf-8"))["rows"]:
        if row["channels"] == 256 and row["seed"] == 0:
            found.setdefault(row["group"], {})[row["pooling"]] = 100 * row[measure]
    return found


def draw_ridges(ax: plt.Axes, found: dict[str, dict[str, float]]) -> None:
    for index, (group, label) in enumerate({"ridge": "about zero", "centred": "centred"}.items()):
        pairs = sorted((float(re.search(r"ridge=([\d.]+)", name)[1]), value) for name, value in found[group].items())
        ax.plot(*zip(*pairs, strict=True), "o-", color=colour_of(index), label=label)
    for name, label in LINES.items():
        value = found["baselines"][name]
        ax.axhline(value, color="0.6", linewidth=1)
        ax.annotate(label, (1, value), (-2, 1), xycoords=("axes fraction", "data"), textcoords="offset points",
                    ha="right", va="bottom", fontsize=8)  # fmt: skip
    ax.set(xscale="log", xlabel="ridge", ylabel="%", title="held-out accuracy")
    ax.legend(fontsize=9)


def draw_maps(ax: plt.Axes) -> None:
    for measure, label, fill in (("accuracy", "held out", "full"), ("leave_one_out", "leave-one-out", "none")):
        found = read(measure)
        values = [(found["centred"] | found["map"])[name] for name in MAPS]
        ax.plot(values, range(len(values)), "o", color=colour_of(1), fillstyle=fill, label=label)
    ax.set_yticks(range(len(MAPS)), list(MAPS.values()))
    ax.set(xlim=(50, 62), ylim=(len(MAPS) - 0.5, -0.5), xlabel="%", title="functions of the covariance")
    ax.legend(fontsize=9)


def main(out: str) -> None:
    with mpl.rc_context(style()):
        figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), dpi=110, layout="constrained")
        draw_ridges(axes[0], read("accuracy"))
        draw_maps(axes[1])
        figure.savefig(out)
    print(f"wrote {out}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "ridge.png")
