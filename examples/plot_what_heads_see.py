"""What each pooling can see: classes that differ only in the dependence of channels

Two families of four texture classes with twelve channels. Every channel has mean zero and variance
one in every class, so average pooling is near chance. In the first family the classes differ in
which channels are correlated, and any second-order pooling separates them. In the second family two
strong factors common to all classes mask these pairs: the covariances are nearly equal, the partial
correlations are not. Each pooling is applied to the raw channels (8×8 positions), and a linear
classifier is trained on ten images per class. The data are synthetic: the figure shows what a
pooling can represent, not its accuracy on photographs.

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
from isice.report.theme import colour_of, style

POOLINGS = {
    "gap": "average pooling",
    "bilinear": "bilinear (BCNN)",
    "covariance": "covariance",
    "isqrt_cov": "iSQRT-COV",
    "log_euclidean": "log-Euclidean",
    "precision": "precision Ω",
    "isice": "iSICE",
    "partial_correlation(ridge=1, center=True)": "partial correlation",
}
FAMILIES = {"correlation": "classes differ in correlations", "partial": "the same, masked by common factors"}
N_TRAIN, N_TEST, CHANNELS, SIZE = 40, 800, 12, 8
SEEDS = range(5)


def accuracy(name: str, family: str, seed: int) -> float:
    """Return the test accuracy (%) of a linear classifier on the descriptors of one pooling."""
    pooling = create_pooling(name, CHANNELS)
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
        for index, (family, label) in enumerate(FAMILIES.items()):
            for row, name in enumerate(POOLINGS):
                mean, std, _ = mean_std([accuracy(name, family, seed) for seed in SEEDS])
                print(f"{label:30} {name:42} {mean:5.1f} ± {std:.1f} %")
                y, colour = row + 0.26 * index - 0.13, colour_of(index)
                ax.plot([mean - std, mean + std], [y, y], color=colour, linewidth=3, alpha=0.45)
                ax.plot([mean], [y], "os"[index], color=colour, markersize=7, label=label if row == 0 else None)
        ax.axvline(25, color="#57606a", linestyle="--", linewidth=1)
        ax.annotate("chance", (25, len(POOLINGS) - 0.6), (5, 0), textcoords="offset points", fontsize=9)
        ax.set_yticks(range(len(POOLINGS)), POOLINGS.values())
        ax.set(
            ylim=(len(POOLINGS) - 0.4, -0.6),
            xlim=(20, 102),
            xlabel="test accuracy (%), mean ± standard deviation over five seeds",
        )
        ax.grid(visible=False, axis="y")
        figure.legend(loc="outside upper center", ncols=2)
        figure.savefig(out)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "what_heads_see.png")
