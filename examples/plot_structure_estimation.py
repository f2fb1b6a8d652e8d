"""How many samples does it take to estimate a precision matrix? (paper, Sec. 4, dense vs sparse structure)

Samples of a normal distribution whose precision matrix P (100×100) is dense or sparse; the error ‖P̂ − P‖_F of the
sparse estimate (SICE, λ by cross-validation) and of maximum likelihood (the inverse of the sample covariance, which
exists only from 101 samples on). The paper does not say how it drew P nor how it chose λ; both are choices made here.

Usage: python examples/plot_structure_estimation.py [figure.png]
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from isice.estimator import SparsePrecisionCV

SIZE = 100
SAMPLES = (50, 80, 120, 200, 400, 800, 1600, 3200)
SEEDS = (0, 1, 2)


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
    sparse = SparsePrecisionCV(sparsities=np.geomspace(0.6, 0.006, 8), cv=4, tol=1e-4).fit(samples).precision_
    likelihood = np.linalg.inv(np.cov(samples.T, bias=True)) if n > SIZE else np.full_like(precision, np.nan)
    return float(np.linalg.norm(sparse - precision)), float(np.linalg.norm(likelihood - precision))


def main(out: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    for ax, (name, make) in zip(axes, {"dense": dense_precision, "sparse": sparse_precision}.items(), strict=True):
        table = np.zeros((len(SEEDS), len(SAMPLES), 2))
        for i, seed in enumerate(SEEDS):
            rng = np.random.default_rng(seed)
            precision = make(rng)
            table[i] = [errors(precision, n, rng) for n in SAMPLES]
        mean, spread = table.mean(axis=0), table.std(axis=0)
        for k, (method, colour) in enumerate({"SICE": "#0072b2", "maximum likelihood": "#d55e00"}.items()):
            ax.errorbar(SAMPLES, mean[:, k], spread[:, k], marker="o", color=colour, label=method, capsize=3)
        ax.set(xscale="log", yscale="log", xlabel="samples", title=f"{name} structure")
        for n, (sice, mle) in zip(SAMPLES, mean, strict=True):
            print(f"{name:6} {n:5d} samples: SICE {sice:7.2f}, maximum likelihood {mle:8.2f}")
    axes[0].set(ylabel="‖P̂ − P‖ (Frobenius)")
    axes[1].legend(frameon=False)
    figure.savefig(out, dpi=120)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".png"))
