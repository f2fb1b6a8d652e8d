"""Finding hidden pairs of channels in one image

One texture has twelve channels in six dependent pairs, masked by two strong factors that act on
every channel. Most correlations are large: thresholded at 0.3 they connect nearly all channels, and
the six largest are all wrong. The six largest partial correlations, computed by the iSICE pooling
from the same 40×40 positions, are the six pairs. The true pairs are neighbours on the circle. A
line is wider for a stronger dependence; its colour is the sign.

Usage: python examples/plot_hidden_pairs.py [figure.png]
"""

import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.lines import Line2D

import isice.functional as F
from isice import create_pooling
from isice.data.synthetic import gaussian_fields, texture_covariances
from isice.explain import partial_correlations
from isice.graph_plots import NEGATIVE, POSITIVE, plot_graph
from isice.report.theme import style

CHANNELS = 12


def strongest(matrix: np.ndarray, count: int = CHANNELS // 2) -> np.ndarray:
    """Keep the ``count`` off-diagonal pairs of largest absolute value."""
    strength = np.abs(np.triu(matrix, 1))
    kept = strength >= np.sort(strength.ravel())[-count]
    return matrix * (kept | kept.T)


def main(out: str) -> None:
    cov = texture_covariances("partial", channels=CHANNELS)[:1]
    truth = strongest(F.partial_correlation(torch.linalg.inv(cov))[0].numpy())
    image = gaussian_fields(cov, size=40)
    correlation = F.correlation(F.covariance(image))[0].numpy()
    partial = partial_correlations(create_pooling("isice", CHANNELS), image)[0].numpy()
    graphs = {
        "the true pairs,\npartial correlations": truth,
        "all correlations\nabove 0.3": np.where(np.abs(correlation) > 0.3, correlation, 0.0),
        "six largest\ncorrelations": strongest(correlation),
        "six largest\npartial correlations": strongest(partial),
    }
    planted = np.triu(truth != 0, 1)
    for name, matrix in graphs.items():
        edges = np.triu(matrix != 0, 1)
        print(f"{' '.join(name.split())}: {edges.sum()} edges, {(edges & planted).sum()} of them true")

    with mpl.rc_context(style()):
        figure, axes = plt.subplots(1, 4, figsize=(12, 4.3), dpi=100)
        for ax, (name, matrix) in zip(axes, graphs.items(), strict=True):
            edges = np.triu(matrix != 0, 1)
            plot_graph(matrix, range(1, CHANNELS + 1), order=np.argwhere(planted).ravel(), ax=ax)
            ax.set(xlim=(-1.3, 1.3), ylim=(-1.6, 1.3))
            for text in ax.texts:
                text.set(rotation=0, ha="center", position=1.08 * np.asarray(text.get_position()))
            ax.set_title(name, loc="center", fontsize=10.5)
            found = f"{(edges & planted).sum()} of {edges.sum()} are true pairs"
            ax.text(0, -1.55, found, ha="center", fontsize=10)
        keys = [Line2D([], [], color=colour, linewidth=3) for colour in (POSITIVE, NEGATIVE)]
        figure.legend(
            keys, ["rise together (positive)", "one rises, one falls (negative)"], loc="outside lower center", ncols=2
        )
        figure.get_layout_engine().set(rect=(0, 0, 1, 0.93))  # room for titles above axes without a frame
        figure.savefig(out)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "hidden_pairs.png")
