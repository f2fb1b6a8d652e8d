"""Confounding: correlation against partial correlation

Two variables x and y do not influence each other, but both depend on a third, z. Their correlation
is high (left). After regressing both on z, it is gone (middle). Partial correlations, read off the
inverse of the covariance matrix, show this for all pairs at once: they connect x with z and y with
z, but not x with y (right). This is the paper's motivation for describing an image by the partial
correlations of its channels.

Usage: python examples/plot_confounding.py [figure.png]
"""

import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import torch

import isice.functional as F
from isice.report.theme import colour_of, style

N_SAMPLES = 1000


def samples(seed: int = 0) -> torch.Tensor:
    """Draw samples of (x, y, z), where x and y are z plus independent noise."""
    z, noise_x, noise_y = torch.randn(3, N_SAMPLES, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.stack([z + 0.6 * noise_x, z + 0.6 * noise_y, z])


def residual(values: torch.Tensor, cause: torch.Tensor) -> torch.Tensor:
    """Return the residual of the linear regression of ``values`` on ``cause``."""
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
        middle.scatter(residual(x, z), residual(y, z), c=z, s=5, cmap="viridis")
        title = f"partial correlation {partial[0, 1]:+.2f}".replace("-", "−")
        middle.set(title=title, xlabel="residual of x given z", ylabel="residual of y given z")
        for index, (name, matrix) in enumerate({"correlation": correlation, "partial": partial}.items()):
            values = [float(matrix[i, j]) for i, j in ((0, 1), (0, 2), (1, 2))]
            right.bar(np.arange(3) + 0.4 * index - 0.2, values, 0.36, color=colour_of(index), label=name)
        right.set_xticks(range(3), ["x – y", "x – z", "y – z"])
        right.set(ylim=(-0.15, 1.25), title="all pairs")
        right.axhline(0, color="#57606a", linewidth=0.8)
        right.legend(ncols=2, loc="upper center", fontsize=9)
        figure.savefig(out)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "confounding.png")
