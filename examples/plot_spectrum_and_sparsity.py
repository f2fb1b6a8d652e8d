"""What the steps of iSICE change: zeros and spectrum

A feature map of 64 channels and 14×14 positions whose channels are dependent in pairs, so the true
precision matrix has one off-diagonal entry per row. Left: the non-zero entries of each estimate.
The start S₀ has no zeros, and five steps at the default settings add hardly any; the spectrum of
iSICE coincides with that of S₀ (right). At its defaults iSICE is a regularised inverse. Larger
steps (η = 20) give more zeros, and two hundred of them approach the truth, as the exact solver
does.

Usage: python examples/plot_spectrum_and_sparsity.py [figure.png]
"""

import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import torch

import isice.functional as F
from isice.data.synthetic import gaussian_fields, texture_covariances
from isice.explain import isice_before_after, structure
from isice.report.matrix_plots import plot_pattern, plot_spectra
from isice.report.theme import style

CHANNELS, SIZE = 64, 14


def feature_covariances() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the true covariance and that of one feature map, with paired channels adjacent."""
    true = texture_covariances("correlation", n_classes=2, channels=CHANNELS)[0]
    partner = (true - torch.eye(CHANNELS)).argmax(dim=1)
    order = torch.argsort(torch.minimum(partner, torch.arange(CHANNELS)), stable=True)
    true = true[order][:, order].double()
    field = gaussian_fields(true.float().unsqueeze(0), size=SIZE, smoothness=0.0).double()
    return true, F.covariance(field)[0]


def main(out: str) -> None:
    true, cov = feature_covariances()
    scaled = cov / cov.trace()
    before, after = isice_before_after(cov)
    longer = isice_before_after(cov, step_size=20.0)[1]
    many = isice_before_after(cov, step_size=20.0, n_iter=200)[1]
    exact = structure(F.graphical_lasso(cov, sparsity=0.25, scale="correlation").precision)
    truth = structure(torch.linalg.inv(true), tol=1e-6)
    shown = {"truth": truth, "exact solver": exact, "S₀": before, "iSICE": after}
    shown |= {"iSICE, η = 20": longer, "η = 20, N = 200": many}
    for name, facts in shown.items():
        print(f"{name:16} {100 * facts.density:5.1f} % not zero, smallest eigenvalue {facts.eigenvalues[-1]:.3g}")

    with mpl.rc_context(style()):
        figure = plt.figure(figsize=(10.5, 4.4), dpi=100)
        grid = figure.add_gridspec(2, 5, width_ratios=[1, 1, 1, 0.05, 2.2])
        for index, (name, facts) in enumerate(shown.items()):
            plot_pattern(facts.nonzero, ax=figure.add_subplot(grid[index % 2, index // 2]), title=name)
        spectra = {"exact inverse of Σ'": torch.linalg.eigvalsh(torch.linalg.inv(scaled)).numpy()}
        spectra |= {"S₀ (7 inner steps)": before.eigenvalues, "iSICE": after.eigenvalues}
        spectra |= {"η = 20": longer.eigenvalues, "η = 20, N = 200": many.eigenvalues}
        plot_spectra(spectra, ax=figure.add_subplot(grid[:, 4])).set_title("spectrum")
        figure.savefig(out)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "spectrum_and_sparsity.png")
