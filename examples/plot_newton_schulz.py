"""Early stopping of Newton–Schulz regularises the inverse

iSICE inverts the trace-one covariance Σ' by a fixed number of Newton–Schulz steps. Large
eigenvalues are inverted. Small ones grow by at most a factor of 2.25 per step, so no eigenvalue of
the result exceeds 2.25 to the number of steps. With 256 channels the mean eigenvalue of Σ' is 1/256
and most are smaller, so the cap applies to most of them. The result is a regularised inverse, which
exists even if Σ' is singular. More steps regularise less.

Usage: python examples/plot_newton_schulz.py [figure.png]
"""

import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import torch

import isice.functional as F
from isice.report.theme import colour_of, style

STEPS = (3, 5, 7, 10)


def main(out: str) -> None:
    eigenvalues = torch.logspace(-7, 0, 200, dtype=torch.float64)
    cov = torch.diag(eigenvalues / eigenvalues.sum())  # trace one, as iSICE makes it
    with mpl.rc_context(style()):
        figure, ax = plt.subplots(figsize=(7, 4.2), dpi=110)
        x = cov.diagonal()
        ax.plot(x, 1 / x, color="#57606a", linestyle="--", linewidth=1.4)
        ax.annotate("exact inverse", (2.2e-5, 5e4))
        for index, steps in enumerate(STEPS):
            inverse = F.newton_schulz_inverse(cov, n_iter=steps).diagonal()
            print(f"{steps:2d} steps: largest eigenvalue {inverse.max():9.1f}, cap 2.25^{steps} = {2.25**steps:9.1f}")
            ax.plot(x, inverse, color=colour_of(index), linewidth=2)
            ax.annotate(f"{steps} steps, cap {2.25**steps:,.0f}", (1.2e-6, 1.12 * 2.25**steps), color=colour_of(index))
        ax.axvline(1 / 256, color="#57606a", linewidth=1)
        ax.annotate("mean eigenvalue\nof 256 channels", (1 / 256, 3e4), (8, 0), textcoords="offset points", fontsize=9)
        ax.set(xscale="log", yscale="log", xlim=(1e-6, 0.06), ylim=(5, 1e5))
        ax.set(xlabel="eigenvalue of Σ'", ylabel="eigenvalue of the result", title="Newton–Schulz inverse of Σ'")
        figure.savefig(out)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "newton_schulz.png")
