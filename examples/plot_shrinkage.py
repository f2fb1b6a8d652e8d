"""What shrinkage does to a spectrum, and to the inverse

A feature map of 256 channels and 14×14 positions has a singular covariance: 61 of its eigenvalues
are zero although no true one is (left; the mean eigenvalue is one). A ridge r is added to all of
them, and (D·Σ' + rI)/(1 + r) has less spread. Right: off the diagonal, (D·Σ' + rI)⁻¹ gives an
eigenvalue x the weight −x/(r(x + r)), here relative to its limit −1/r. Directions with x ≪ r keep
their proportions, as in the covariance; those with x ≫ r all count the same. With r = 0.1 nearly
every direction is saturated, noise included; with r = 10 only the leading ones are. Seven steps of
Newton–Schulz, the default of `precision`, act like a ridge of about one
with 256 channels. Ledoit–Wolf, OAS and Schäfer–Strimmer estimate r from the features. They minimise
the error of Σ, not of its inverse or of a classifier, and choose small ridges. The data are
synthetic: the figure shows what r does, not which r is most accurate.

Usage: python examples/plot_shrinkage.py [figure.png]
"""

import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import torch
from torch import Tensor

import isice.functional as F
from isice.report.theme import colour_of, style

CHANNELS, POSITIONS = 256, 14 * 14
RIDGES = (0.1, 1.0, 10.0)
RULES = {"ledoit_wolf": "Ledoit–Wolf", "oas": "OAS", "schaefer_strimmer": "Schäfer–Strimmer"}
GREY = "#57606a"


def feature_map() -> tuple[Tensor, Tensor]:
    """Return true eigenvalues of mean one, in descending order, and Gaussian features (1, C, N)."""
    generator = torch.Generator().manual_seed(0)
    spectrum = 1 / torch.arange(1, CHANNELS + 1, dtype=torch.float64)
    spectrum *= CHANNELS / spectrum.sum()
    axes = torch.linalg.qr(torch.randn(CHANNELS, CHANNELS, generator=generator, dtype=torch.float64))[0]
    noise = torch.randn(CHANNELS, POSITIONS, generator=generator, dtype=torch.float64)
    return spectrum, (axes @ (spectrum.sqrt()[:, None] * noise))[None]


def newton_schulz_weight(x: Tensor, steps: int = 7) -> Tensor:
    """Return 1 − f(x)/f(0) for the eigenvalues f of the stopped inverse."""
    share = x / CHANNELS  # of the trace, which the inverse sets to one
    inverse = F.newton_schulz_inverse(
        torch.diag_embed(torch.stack([share, 0 * share, 1 - share], dim=-1)), n_iter=steps
    )
    return 1 - inverse[:, 0, 0] / inverse[:, 1, 1]


def draw_spectra(ax: plt.Axes, true: Tensor, sample: Tensor) -> None:
    rank = torch.arange(1, CHANNELS + 1)
    ax.plot(rank, true, color=GREY, linestyle="--", linewidth=1.4, label="true")
    ax.plot(rank, sample.clamp_min(1e-9), color="black", linewidth=2, label="sample, D·Σ'")
    for index, ridge in enumerate(RIDGES):
        ax.plot(rank, (sample + ridge) / (1 + ridge), color=colour_of(index), label=f"ridge {ridge:g}")
    ax.set(yscale="log", ylim=(0.01, 100), xlabel="rank", ylabel="eigenvalue", title="(D·Σ' + rI)/(1 + r)")
    ax.legend(fontsize=9)


def draw_weights(ax: plt.Axes, x: Tensor, estimated: dict[str, float]) -> None:
    for index, ridge in enumerate(RIDGES):
        ax.plot(x, x / (x + ridge), color=colour_of(index), linewidth=2, label=f"ridge {ridge:g}")
    ax.plot(x, newton_schulz_weight(x), color="black", linewidth=1.6, label="Newton–Schulz, 7 steps")
    for index, (rule, ridge) in enumerate(estimated.items(), start=len(RIDGES)):
        ax.plot(x, x / (x + ridge), color=colour_of(index), linestyle="--", label=f"{RULES[rule]}, r = {ridge:.2f}")
    ax.set(xscale="log", xlim=(0.01, 100), ylim=(0, 1.6), yticks=(0, 0.5, 1), xlabel="eigenvalue x of D·Σ'")
    ax.set_title("weight of x in the inverse, off the diagonal")
    ax.legend(fontsize=9, ncols=2, loc="upper left")


def main(out: str) -> None:
    true, features = feature_map()
    cov = F.covariance(features)[0]
    sample = torch.linalg.eigvalsh(cov * CHANNELS / cov.trace()).flip(0)
    estimated = {rule: float(F.shrinkage_ridge(features, rule)) for rule in RULES}
    print(f"{int((sample < 1e-9).sum())} of {CHANNELS} eigenvalues are zero; ridges: {estimated}")
    with mpl.rc_context(style()):
        figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), dpi=100)
        draw_spectra(left, true, sample)
        draw_weights(right, torch.logspace(-2, 2, 200, dtype=torch.float64), estimated)
        figure.savefig(out)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "shrinkage.png")
