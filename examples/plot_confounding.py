"""Correlated, and yet unrelated: what a third variable does

Two quantities x and y that have nothing to do with each other, but both follow a third one, z. Their correlation is
high: anyone who looks at pairs only would connect them. Among samples with the same z the connection is gone. The
partial correlation, read off the inverse of the covariance matrix, gives that answer for all pairs at once: it
connects x with z and y with z, and nothing else. This is the confounding of the paper's first figure, and the reason
to represent an image by partial correlations of its channels and not by their correlations.

Usage: python examples/plot_confounding.py [figure.png]
"""

import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import torch

import isice.functional as F
from isice.report.plots import colour_of, style

N_SAMPLES = 1000


def samples(seed: int = 0) -> torch.Tensor:
    """Rows x, y and z of N samples: z is drawn, x and y are z with noise of their own."""
    z, noise_x, noise_y = torch.randn(3, N_SAMPLES, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.stack([z + 0.6 * noise_x, z + 0.6 * noise_y, z])


def without(values: torch.Tensor, cause: torch.Tensor) -> torch.Tensor:
    """What is left of ``values`` after subtracting their best linear prediction from ``cause``."""
    values, cause = values - values.mean(), cause - cause.mean()
    return values - cause * (values @ cause) / (cause @ cause)


def main(out: str) -> None:
    data = samples()
    x, y, z = data
    cov = F.covariance(data)
    correlation, partial = F.correlation(cov), F.partial_correlation(torch.linalg.inv(cov))
    print(f"x and y: correlation {correlation[0, 1]:+.2f}, partial correlation {partial[0, 1]:+.2f}")

    with mpl.rc_context(style()):
        figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10, 3.6), dpi=100)
        dots = left.scatter(x, y, c=z, s=5, cmap="viridis")
        left.set(title=f"correlation {correlation[0, 1]:+.2f}", xlabel="x", ylabel="y")
        figure.colorbar(dots, ax=left, label="z", shrink=0.8)
        middle.scatter(without(x, z), without(y, z), c=z, s=5, cmap="viridis")
        title = f"partial correlation {partial[0, 1]:+.2f}".replace("-", "−")
        middle.set(title=title, xlabel="x without its part from z", ylabel="y without its part from z")
        for index, (name, matrix) in enumerate({"correlation": correlation, "partial": partial}.items()):
            values = [float(matrix[i, j]) for i, j in ((0, 1), (0, 2), (1, 2))]
            right.bar(np.arange(3) + 0.4 * index - 0.2, values, 0.36, color=colour_of(index), label=name)
        right.set_xticks(range(3), ["x – y", "x – z", "y – z"])
        right.set(ylim=(-0.15, 1.25), title="all three pairs")
        right.axhline(0, color="#57606a", linewidth=0.8)
        right.legend(ncols=2, loc="upper center", fontsize=9)
        figure.savefig(out)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "confounding.png")
