"""The channel graph of one image

A second-order descriptor is a matrix of dependences between channels. This figure shows the largest
partial correlations of one handwritten digit as a graph, and for each edge where its two channels
are active. A positive edge joins channels that are active at the same positions after accounting
for all other channels; a negative edge joins channels that exclude each other. The network has
sixteen channels and was trained for a few seconds. `isice explain` draws the same for any trained
run and image.

Usage: python examples/plot_channel_graph.py [figure.png]
"""

import sys

import matplotlib as mpl
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from torch.nn.functional import cross_entropy

from isice import Network, create_model
from isice.config import DataConfig
from isice.data import load_splits
from isice.explain import channel_graphs
from isice.report.channel_graph_plots import channel_graph_figure
from isice.report.theme import style

EPOCHS, BATCH, SIZE = 4, 64, 16


def train(images: torch.Tensor, labels: torch.Tensor) -> Network:
    """Train a small network with iSICE pooling and AdamW."""
    torch.manual_seed(0)
    model = create_model("small_cnn", num_classes=10, pooling="isice", reduce=16, in_chans=1, widths=(8, 16, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(labels)).split(BATCH):
            optimizer.zero_grad()
            cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
    return model.eval()


def main(out: str) -> None:
    splits = load_splits(DataConfig(name="digits", image_size=SIZE))
    images, labels = (torch.stack([torch.as_tensor(item[k]) for item in splits.train]) for k in (0, 1))
    tests, answers = (torch.stack([torch.as_tensor(item[k]) for item in splits.test]) for k in (0, 1))
    model = train(images, labels)
    with torch.no_grad():
        print(f"{100 * (model(tests).argmax(dim=1) == answers).float().mean():.1f} % of {len(answers)} test digits")
    example = int(torch.nonzero(answers == 3)[0])
    graph = channel_graphs(model, tests[example : example + 1], n_pairs=6)[0]
    with mpl.rc_context(style()):
        figure = channel_graph_figure(
            tests[example, 0].numpy(), graph.pairs, graph.strengths, graph.activations, title="iSICE, a three", dpi=95
        )
        FigureCanvasAgg(figure).print_png(out)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "channel_graph.png")
