"""Heat maps and class maps of three poolings

Heads with different poolings learn to tell crops of two photographs apart, a temple and a flower,
from the features of a frozen EfficientNet. They then see both photographs side by side. Upper row:
the mean of the features after the reduction, as in the paper's appendix. It shows where a network
is active, not why. Lower rows: class maps, from the gradient of a class score. Grad-CAM is exactly
zero for covariance-based poolings, because they do not depend on channel means;
`isice.explain.class_maps` computes a map that is defined for every pooling. The captions give the
share of its positive values on the half that shows the class. With two photographs this
demonstrates the maps; it does not rank the poolings. The picture was drawn with ImageNet weights,
the script's second argument; without it the EfficientNet is random.

Usage: python examples/plot_heat_maps.py [figure.png] [tf_efficientnet_lite0.safetensors]
"""

import sys

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from sklearn.datasets import load_sample_image
from torch import Tensor
from torch.nn.functional import cross_entropy, interpolate

from isice import Network, attach, create_model
from isice.explain import class_maps, mean_maps
from isice.report.heat_map_plots import MapRow, maps_figure
from isice.report.theme import style

POOLINGS = {"gap": "average pooling", "isqrt_cov": "iSQRT-COV", "isice": "iSICE"}
PHOTOGRAPHS = {"temple": "china.jpg", "flower": "flower.jpg"}
BACKBONE, CHANNELS = "tf_efficientnet_lite0", 16
SIDE, CROP, N_CROPS, STEPS = 320, 192, 48, 60


def photograph(name: str) -> Tensor:
    """Return the middle of one of scikit-learn's two photographs, (3, SIDE, SIDE) in [0, 1]."""
    pixels = torch.from_numpy(load_sample_image(name) / 255.0).float().movedim(-1, 0)
    left = (pixels.shape[2] - pixels.shape[1]) // 2
    square = pixels[None, :, :, left : left + pixels.shape[1]]
    return interpolate(square, size=(SIDE, SIDE), mode="bilinear", antialias=True)[0]


def crops(image: Tensor, generator: torch.Generator) -> Tensor:
    """Return random crops (N, 3, CROP, CROP)."""
    corners = torch.randint(SIDE - CROP + 1, (N_CROPS, 2), generator=generator).tolist()
    return torch.stack([image[:, top : top + CROP, left : left + CROP] for top, left in corners])


def normalized(images: Tensor) -> Tensor:
    """Scale pixels to −1 … 1, as the backbone was trained."""
    return 2 * images - 1


def train(pooling: str, backbone: Network, features: Tensor, labels: Tensor) -> Network:
    """Train a head on features of the backbone, which does not change."""
    torch.manual_seed(0)
    model = attach(backbone, pooling, num_classes=len(PHOTOGRAPHS), reduce=CHANNELS)
    head = [p for name, p in model.named_parameters() if not name.startswith("backbone.")]
    optimizer = torch.optim.AdamW(head, lr=3e-3)
    model.train()  # the backbone is not called
    for _ in range(STEPS):
        optimizer.zero_grad()
        cross_entropy(model.forward_head(model.reduce(features)), labels).backward()
        optimizer.step()
    return model.eval()


def share_on_half(values: np.ndarray, half: slice) -> str:
    """Return the share of the positive values on one half as a caption."""
    positive = np.clip(values, 0, None)
    total = positive.sum()
    return f"{100 * positive[:, half].sum() / total:.0f} % on its half" if total else "no positive value"


def main(out: str, weights: str | None = None) -> None:
    generator = torch.Generator().manual_seed(0)
    network = create_model(BACKBONE, pooling="gap", num_classes=2, reduce=CHANNELS, checkpoint_path=weights).eval()
    pictures = {name: photograph(file) for name, file in PHOTOGRAPHS.items()}
    images = torch.cat([crops(picture, generator) for picture in pictures.values()])
    labels = torch.arange(len(pictures)).repeat_interleave(N_CROPS)
    with torch.no_grad():
        features = torch.cat([network.backbone(normalized(batch)) for batch in images.split(16)])
    models = {name: train(pooling, network, features, labels) for pooling, name in POOLINGS.items()}

    names, rows = list(pictures), []
    for order in (names, names[::-1]):
        both = torch.cat([pictures[name] for name in order], dim=2)
        picture, x = both.movedim(0, -1).numpy(), normalized(both[None])
        if not rows:
            rows.append(MapRow(picture, [mean_maps(model, x)[0] for model in models.values()], name="features"))
        for shown in names if order == names else names[1:]:
            half = slice(order.index(shown) * SIDE, (order.index(shown) + 1) * SIDE)
            values = [class_maps(model, x, [names.index(shown)])[0][0] for model in models.values()]
            rows.append(MapRow(picture, values, "class", [share_on_half(value, half) for value in values], shown))
    for name, row in zip(("", "temple", "flower", "flower on the left"), rows, strict=True):
        print(name, dict(zip(models, row.captions, strict=False)))
    with mpl.rc_context(style()):
        FigureCanvasAgg(maps_figure(rows, list(models), size=2.0, dpi=90)).print_png(out)


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["heat_maps.png"]))
