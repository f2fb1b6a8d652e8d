"""Where do heads look? Heat maps of three networks that find a digit in clutter

Handwritten digits (0, 1, 4 and 7) are put somewhere on a canvas with scraps of other digits. One small network per head
learns to name them in a few seconds; then each is shown new canvases. The upper rows are the heat maps of the
paper's appendix: the mean of the last feature maps. They tell where a network is active, not why. The lower rows ask
for the class: where does its score come from, by the gradient at the feature map? For heads made from a covariance
the usual Grad-CAM is exactly zero everywhere, because they do not see the mean of a channel; `isice.explain.class_maps`
says so and offers a map that exists for every head. Below it is the part of its positive values on the digit, whose
box is 16 % of the canvas. With one network per head this is a picture of how to look, not a ranking of heads.

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
from isice.report.explain_plots import MapRow, maps_figure
from isice.report.plots import style

HEADS = {"gap": "average pooling", "isqrt_cov": "iSQRT-COV", "isice": "iSICE"}
DIGITS, SIDE, SCRAPS = (0, 1, 4, 7), 20, 3
N_TRAIN, N_TEST, EPOCHS = 512, 200, 6


def canvases(count: int, *, part: int) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Images (N, 1, SIDE, SIDE), labels, and masks (N, SIDE, SIDE) of the box with the digit.

    The digits of part 0 are not those of part 1.
    """
    raw, rng = load_digits(), np.random.default_rng(part)
    pictures, targets = raw.images[part::2] / 16.0, raw.target[part::2]
    chosen = [rng.choice(np.flatnonzero(targets == DIGITS[i % len(DIGITS)])) for i in range(count)]
    images, masks = np.zeros((count, SIDE, SIDE), np.float32), np.zeros((count, SIDE, SIDE), bool)
    for image, mask, index in zip(images, masks, chosen, strict=True):
        for _ in range(SCRAPS):
            (top, left), (y, x) = rng.integers(0, SIDE - 4, 2), rng.integers(0, 5, 2)
            image[top : top + 4, left : left + 4] = rng.choice(pictures)[y : y + 4, x : x + 4]
        top, left = rng.integers(0, SIDE - 8, 2)
        image[top : top + 8, left : left + 8] = pictures[index]
        mask[top : top + 8, left : left + 8] = True
    return torch.from_numpy(images).unsqueeze(1), torch.arange(count) % len(DIGITS), masks


def train(head: str, images: torch.Tensor, labels: torch.Tensor) -> Network:
    """A small network with this head, trained by plain AdamW."""
    torch.manual_seed(0)
    model = create_model("small_cnn", pooling=head, num_classes=len(DIGITS), reduce=16, in_chans=1, widths=(8, 16, 16))
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
    """The part of the positive map that lies on the digit, in words."""
    positive = np.clip(values, 0, None)
    return f"{100 * positive[mask].sum() / positive.sum():.0f} % on the digit"


def main(out: str) -> None:
    images, labels, _ = canvases(N_TRAIN, part=0)
    new_images, new_labels, masks = canvases(N_TEST, part=1)
    models = {name: train(head, images, labels) for head, name in HEADS.items()}
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
