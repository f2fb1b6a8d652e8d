"""How many samples does it take to estimate a precision matrix?

Samples of a normal distribution whose precision matrix P (100×100) is dense or sparse; the error ‖P̂ − P‖_F of the
sparse estimate (SICE, λ by cross-validation) and of maximum likelihood (the inverse of the sample covariance, which
exists only from 101 samples on). With few samples the sparse estimate wins, whatever the truth; with many it keeps its
lead only where the truth is sparse. A feature map of 14×14 positions gives 196 samples: that is the left end of these
curves. The paper does not say how it drew P nor how it chose λ; both are choices made here.

Usage: python examples/plot_structure_estimation.py [figure.png]
"""

import sys
from collections.abc import Callable

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

from isice.estimator import SparsePrecisionCV
from isice.report.plots import colour_of, style

SIZE = 100
SAMPLES = (60, 120, 200, 400, 1000, 3200)
SEEDS = (0, 1)


def dense_precision(rng: np.random.Generator) -> np.ndarray:
    """A Wishart-like matrix scaled to eigenvalues around one: no entry is zero."""
    factor = rng.normal(size=(SIZE, 2 * SIZE))
    return factor @ factor.T / (2 * SIZE) + 0.1 * np.eye(SIZE)


def sparse_precision(rng: np.random.Generator) -> np.ndarray:
    """About two edges per variable; diagonally dominant, hence positive definite."""
    upper = np.triu(np.where(rng.random((SIZE, SIZE)) < 2 / SIZE, rng.uniform(-0.8, 0.8, (SIZE, SIZE)), 0.0), 1)
    matrix = upper + upper.T
    return matrix + np.diag(np.abs(matrix).sum(axis=1) + 0.3)


def errors(precision: np.ndarray, n: int, rng: np.random.Generator) -> tuple[float, float]:
    """‖P̂ − P‖_F of SICE and of maximum likelihood (NaN where it does not exist) for ``n`` samples."""
    samples = rng.multivariate_normal(np.zeros(SIZE), np.linalg.inv(precision), size=n)
    sparse = SparsePrecisionCV(sparsities=np.geomspace(0.6, 0.006, 7), cv=3, tol=1e-4).fit(samples).precision_
    likelihood = np.linalg.inv(np.cov(samples.T, bias=True)) if n > SIZE else np.full_like(precision, np.nan)
    return float(np.linalg.norm(sparse - precision)), float(np.linalg.norm(likelihood - precision))


def main(out: str) -> None:
    with mpl.rc_context(style()):
        figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), dpi=110, sharey=True)
        for ax, (name, make) in zip(axes, {"dense": dense_precision, "sparse": sparse_precision}.items(), strict=True):
            mean, spread = table(make)
            for k, method in enumerate(("SICE", "maximum likelihood")):
                look = {"color": colour_of((0, 3)[k]), "marker": "os"[k], "label": method, "capsize": 3}
                ax.errorbar(SAMPLES, mean[:, k], spread[:, k], **look)
            ax.set(xscale="log", yscale="log", xlabel="samples", title=f"{name} precision matrix")
            ax.set_xticks(SAMPLES, [f"{n:,}" for n in SAMPLES])
            ax.minorticks_off()
            for n, (sice, mle) in zip(SAMPLES, mean, strict=True):
                print(f"{name:6} {n:5d} samples: SICE {sice:7.2f}, maximum likelihood {mle:8.2f}")
        axes[0].set(ylabel="error ‖P̂ − P‖ (Frobenius)")
        axes[1].legend()
        figure.savefig(out)


def table(make: Callable[[np.random.Generator], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation over seeds of the errors of both methods, by number of samples."""
    values = np.zeros((len(SEEDS), len(SAMPLES), 2))
    for i, seed in enumerate(SEEDS):
        rng = np.random.default_rng(seed)
        precision = make(rng)
        values[i] = [errors(precision, n, rng) for n in SAMPLES]
    return values.mean(axis=0), values.std(axis=0)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "structure_estimation.png")
