"""The channel graph of one photograph

A second-order descriptor is a matrix of dependences between channels. This figure shows the largest
partial correlations in one photograph as a graph, and for each edge where its two channels are
active. A positive edge joins channels that are active at the same positions after accounting for
all other channels; a negative edge joins channels that exclude each other. The twelve channels are
designed filters, not learned ones: four opponent colours, and edges in four directions at two
scales. `isice explain` draws the same for the channels of any trained run.

Usage: python examples/plot_channel_graph.py [figure.png]
"""

import math
import sys

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from sklearn.datasets import load_sample_image
from torch import Tensor
from torch.nn.functional import avg_pool2d, conv2d, interpolate

from isice import create_model
from isice.explain import channel_graphs
from isice.report.channel_graph_plots import channel_graph_figure
from isice.report.theme import style

PHOTOGRAPH, SIZE = "flower.jpg", (80, 120)
DIRECTIONS = {"—": 0, "╱": 45, "|": 90, "╲": 135}
SCALES = {"fine": 1.5, "coarse": 3.0}


def photograph() -> Tensor:
    """Return one of scikit-learn's two photographs, (1, 3, H, W) in [0, 1]."""
    pixels = torch.from_numpy(load_sample_image(PHOTOGRAPH) / 255.0).float().movedim(-1, 0)[None]
    return interpolate(pixels, size=SIZE, mode="bilinear", antialias=True)


def edge_filter(degrees: float, sigma: float) -> Tensor:
    """Return the derivative of a Gaussian across lines of the given direction, (1, 1, K, K)."""
    radius = math.ceil(3 * sigma)
    y, x = torch.meshgrid(*[torch.arange(-radius, radius + 1.0)] * 2, indexing="ij")
    across = x * math.sin(math.radians(degrees)) + y * math.cos(math.radians(degrees))
    weights = across * torch.exp(-(x**2 + y**2) / (2 * sigma**2))
    return (weights / weights.abs().sum())[None, None]


def channels(image: Tensor) -> dict[str, Tensor]:
    """Return name → map (H, W): opponent colours, edge strength by direction and scale."""
    red, green, blue = image[0]
    yellow = (red + green) / 2
    found = {"red": red - green, "green": green - red, "blue": blue - yellow, "yellow": yellow - blue}
    found = {name: values.relu() for name, values in found.items()}
    grey = image.mean(dim=1, keepdim=True)
    for scale, sigma in SCALES.items():
        for sign, degrees in DIRECTIONS.items():
            kernel = edge_filter(degrees, sigma)
            response = conv2d(grey, kernel, padding=kernel.shape[-1] // 2).abs()
            found[f"{scale} {sign}"] = avg_pool2d(response, 5, stride=1, padding=2)[0, 0]
    return {name: values / values.std() for name, values in found.items()}


def main(out: str) -> None:
    image = photograph()
    maps = channels(image)
    features = torch.stack(list(maps.values()))[None]
    model = create_model("identity", pooling="isice", num_classes=2, reduce=None, in_chans=len(maps))
    graph = channel_graphs(model, features, n_pairs=6)[0]
    for (first, second), strength in zip(graph.pairs, graph.strengths, strict=True):
        print(f"{list(maps)[first]} and {list(maps)[second]}: {strength:+.2f}")
    with mpl.rc_context(style()):
        picture = np.asarray(image[0].movedim(0, -1))
        figure = channel_graph_figure(
            picture, graph.pairs, graph.strengths, graph.activations, title="iSICE, one photograph", names=list(maps)
        )  # fmt: skip
        figure.set_dpi(80)
        FigureCanvasAgg(figure).print_png(out)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "channel_graph.png")
