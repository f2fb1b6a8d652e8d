"""Heat maps and class maps of three poolings

Small networks learn to name a handwritten digit (0, 1, 4 or 7) on a canvas with fragments of other
digits. Upper rows: the mean of the last feature maps, as in the paper's appendix. It shows where a
network is active, not why. Lower rows: class maps, from the gradient of the class score. Grad-CAM
is exactly zero for covariance-based poolings, because they do not depend on channel means;
`isice.explain.class_maps` computes a map that is defined for every pooling. The captions give the
share of its positive values on the digit, whose box is 16 % of the canvas. With one network per
pooling this demonstrates the maps; it does not rank the poolings.

Usage: python examples/plot_heat_maps.py [figure.png]
"""

import sys

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

from isice import Network, create_model
from isice.explain import class_maps, mean_maps
from isice.report.heat_map_plots import MapRow, maps_figure
from isice.report.theme import style

POOLINGS = {"gap": "average pooling", "isqrt_cov": "iSQRT-COV", "isice": "iSICE"}
DIGITS, SIDE, FRAGMENTS = (0, 1, 4, 7), 20, 3
N_TRAIN, N_TEST, EPOCHS = 512, 200, 6


def canvases(count: int, *, part: int) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Return images (N, 1, SIDE, SIDE), labels, and masks (N, SIDE, SIDE) of the digit's box.

    Parts 0 and 1 have no digit in common.
    """
    raw, rng = load_digits(), np.random.default_rng(part)
    pictures, targets = raw.images[part::2] / 16.0, raw.target[part::2]
    chosen = [rng.choice(np.flatnonzero(targets == DIGITS[i % len(DIGITS)])) for i in range(count)]
    images, masks = np.zeros((count, SIDE, SIDE), np.float32), np.zeros((count, SIDE, SIDE), bool)
    for image, mask, index in zip(images, masks, chosen, strict=True):
        for _ in range(FRAGMENTS):
            (top, left), (y, x) = rng.integers(0, SIDE - 4, 2), rng.integers(0, 5, 2)
            image[top : top + 4, left : left + 4] = rng.choice(pictures)[y : y + 4, x : x + 4]
        top, left = rng.integers(0, SIDE - 8, 2)
        image[top : top + 8, left : left + 8] = pictures[index]
        mask[top : top + 8, left : left + 8] = True
    return torch.from_numpy(images).unsqueeze(1), torch.arange(count) % len(DIGITS), masks


def train(pooling: str, images: torch.Tensor, labels: torch.Tensor) -> Network:
    """Train a small network with AdamW."""
    torch.manual_seed(0)
    options = {"num_classes": len(DIGITS), "reduce": 16, "in_chans": 1, "widths": (8, 16, 16)}
    model = create_model("small_cnn", pooling=pooling, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * (N_TRAIN // 32))
    for _ in range(EPOCHS):
        for batch in torch.randperm(N_TRAIN).split(32):
            optimizer.zero_grad()
            cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def share_on_digit(values: np.ndarray, mask: np.ndarray) -> str:
    """Return the share of the positive values on the digit as a caption."""
    positive = np.clip(values, 0, None)
    return f"{100 * positive[mask].sum() / positive.sum():.0f} % on the digit"


def main(out: str) -> None:
    images, labels, _ = canvases(N_TRAIN, part=0)
    new_images, new_labels, masks = canvases(N_TEST, part=1)
    models = {name: train(pooling, images, labels) for pooling, name in POOLINGS.items()}
    for name, model in models.items():
        with torch.no_grad():
            accuracy = (model(new_images).argmax(dim=1) == new_labels).float().mean()
        print(f"{name}: {100 * accuracy:.1f} % of {N_TEST} new canvases")

    shown = [2, 3]
    heat = [mean_maps(model, new_images[shown]) for model in models.values()]
    by_class = [class_maps(model, new_images[shown], new_labels[shown].tolist())[0] for model in models.values()]
    pictures = [new_images[index, 0].numpy() for index in shown]
    rows = [
        MapRow(picture, [found[k] for found in heat], "heat", name="feature maps") for k, picture in enumerate(pictures)
    ]
    for k, (index, picture) in enumerate(zip(shown, pictures, strict=True)):
        values = [found[k] for found in by_class]
        captions = [share_on_digit(value, masks[index]) for value in values]
        rows.append(MapRow(picture, values, "class", captions, f"class {DIGITS[new_labels[index]]}"))
    with mpl.rc_context(style()):
        FigureCanvasAgg(maps_figure(rows, list(models), size=1.55, dpi=90)).print_png(out)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "heat_maps.png")
