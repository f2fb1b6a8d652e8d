"""Which head sees what: textures that differ only in how their channels vary together

Two families of four texture classes, twelve channels each. Every channel has mean zero and variance one in every
class, so that average pooling sees next to nothing. In the first family other channels are paired in each class: any
second-order head can tell. In the second the pairs lie beneath two strong factors that all classes share: the
covariances are nearly the same, the partial correlations are not. There it matters what is done to the covariance.
Each head pools the raw channels of 8×8 positions, without any network, and a linear classifier learns from ten
standardised descriptors per class. Both families are made for their purpose: they show what a head can see, not how
good it is on photographs.

Usage: python examples/plot_what_heads_see.py [figure.png]
"""

import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from isice import create_pooling
from isice.data.synthetic import make_textures
from isice.metrics import mean_std
from isice.report.plots import colour_of, style

HEADS = {
    "gap": "average pooling",
    "bilinear": "bilinear (BCNN)",
    "covariance": "covariance",
    "isqrt_cov": "iSQRT-COV",
    "log_euclidean": "log-Euclidean",
    "precision": "precision Ω",
    "isice": "iSICE",
    "partial_correlation": "partial correlation",
}
FAMILIES = {"correlation": "pairs in the open", "partial": "pairs beneath common factors"}
N_TRAIN, N_TEST, CHANNELS, SIZE = 40, 800, 12, 8
SEEDS = range(5)


def accuracy(head: str, family: str, seed: int) -> float:
    """Test accuracy in percent of a linear classifier on the descriptors of one head."""
    pooling = create_pooling(head, CHANNELS)
    parts = []
    for count, part in ((N_TRAIN, 0), (N_TEST, 1)):
        images, labels = make_textures(count, family=family, channels=CHANNELS, size=SIZE, seed=2 * seed + part)
        with torch.no_grad():
            parts.append((pooling(images).numpy(), labels.numpy()))
    (train, train_labels), (test, test_labels) = parts
    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=500)).fit(train, train_labels)
    return 100 * float(classifier.score(test, test_labels))


def main(out: str) -> None:
    with mpl.rc_context(style()):
        figure, ax = plt.subplots(figsize=(7.5, 4), dpi=110)
        for index, (family, name) in enumerate(FAMILIES.items()):
            for row, head in enumerate(HEADS):
                mean, std, _ = mean_std([accuracy(head, family, seed) for seed in SEEDS])
                print(f"{name:30} {head:20} {mean:5.1f} ± {std:.1f} %")
                y, colour = row + 0.26 * index - 0.13, colour_of(index)
                ax.plot([mean - std, mean + std], [y, y], color=colour, linewidth=3, alpha=0.45)
                ax.plot([mean], [y], "os"[index], color=colour, markersize=7, label=name if row == 0 else None)
        ax.axvline(25, color="#57606a", linestyle="--", linewidth=1)
        ax.annotate("chance", (25, len(HEADS) - 0.6), (5, 0), textcoords="offset points", fontsize=9)
        ax.set_yticks(range(len(HEADS)), HEADS.values())
        ax.set(
            ylim=(len(HEADS) - 0.4, -0.6),
            xlim=(20, 102),
            xlabel="accuracy on new textures (%), mean ± standard deviation over five draws",
        )
        ax.grid(visible=False, axis="y")
        figure.legend(loc="outside upper center", ncols=2)
        figure.savefig(out)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "what_heads_see.png")
