"""Lyapunov equation of a Θ-step: polynomials, and the deflation of outlying eigenvalues."""

import pytest
import torch

from isice.ops.correlation import correlation
from isice.ops.graphical_lasso import admm, graphical_lasso
from isice.ops.graphical_lasso.lyapunov import (
    DEFLATED_CONTRACTION,
    Lyapunov,
    correction_polynomial,
    first_probes,
    largest_eigenvalue,
)

from .correlations import KINDS


def symmetric(eigenvalues, seed):
    """Return a symmetric matrix (1, D, D) of given eigenvalues."""
    generator = torch.Generator().manual_seed(seed)
    size = len(eigenvalues)
    vectors = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64)).Q
    return ((vectors * eigenvalues) @ vectors.T)[None]


def factor_model(size):
    """Return singular correlations (D, D) of five factors and D/2 samples."""
    generator = torch.Generator().manual_seed(0)
    loadings = torch.randn(size, 5, generator=generator, dtype=torch.float64)
    scores = torch.randn(5, size // 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(size, size // 2, generator=generator, dtype=torch.float64)
    return correlation(torch.cov(loadings @ scores + noise)[None])[0]


def solution(x, excess):
    """Solve XΔ + ΔX = E by the eigenvectors of X."""
    values, vectors = torch.linalg.eigh(x)
    inner = vectors.mT @ excess @ vectors
    return vectors @ (inner / (values[:, :, None] + values[:, None, :])) @ vectors.mT


@pytest.mark.parametrize("condition", [1.0, 1.5, 4.0, 10.0, 30.0])
def test_polynomials_invert_to_the_error_that_is_wanted(condition):
    coefficients = correction_polynomial(condition, iteration=1, size=50)
    x = torch.linspace(1, condition, 500, dtype=torch.float64)
    value = sum(c * x**power for power, c in enumerate(coefficients))
    assert float((1 - x * value).abs().max()) <= 0.2 + 1e-9
    assert correction_polynomial(1e5, 1, 50) == () == correction_polynomial(float("inf"), 1, 50)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [17, 64, 150])
def test_thelargest_eigenvalue_is_hardly_underestimated(kind, size):
    cov = KINDS[kind](size, 4, 0)
    ratio = largest_eigenvalue(cov)[:, 0, 0] / torch.linalg.eigvalsh(cov)[:, -1]
    assert float(ratio.min()) > 0.9
    assert float(ratio.max()) < 1.6


@pytest.mark.parametrize("n_outliers", [1, 5, 7])
def test_outliers_are_deflated(n_outliers):
    bulk, outliers = torch.linspace(1.0, 3.0, 60), torch.linspace(200.0, 30.0, n_outliers)
    x, excess = symmetric(torch.cat([bulk, outliers]).double(), 0), symmetric(torch.randn(60 + n_outliers).double(), 1)
    x, excess = 0.5 * (x + x.mT), 0.5 * (excess + excess.mT)
    smallest = torch.ones(1, 1, 1, dtype=torch.float64)
    assert Lyapunov(x, smallest).condition > 200
    assert len(Lyapunov(x, smallest).polynomial(9)) == 0  # as expensive as the root from scratch
    deflated = Lyapunov(x, smallest, first_probes(x))
    assert deflated.condition < 4
    coefficients = deflated.polynomial(9)
    assert 2 <= len(coefficients) <= 4
    minus = torch.zeros_like(x)
    deflated.subtract_solution_(minus, excess, coefficients)
    assert torch.equal(minus, minus.mT)
    residual = x @ minus + minus @ x + excess
    assert torch.linalg.matrix_norm(residual) <= DEFLATED_CONTRACTION * torch.linalg.matrix_norm(excess)
    error = torch.linalg.matrix_norm(minus + solution(x, excess))
    assert error <= DEFLATED_CONTRACTION * torch.linalg.matrix_norm(solution(x, excess))


def test_matrices_of_a_batch_have_different_numbers_of_outliers():
    bulk = torch.linspace(1.0, 3.0, 60)
    spectra = [torch.cat([bulk, torch.tensor(top)]).double() for top in ([2.0, 2.0], [2.0, 40.0], [50.0, 60.0])]
    x = torch.cat([symmetric(values, seed) for seed, values in enumerate(spectra)])
    x = 0.5 * (x + x.mT)
    equation = Lyapunov(x, torch.ones(3, 1, 1, dtype=torch.float64), first_probes(x))
    assert (equation.outliers.values > 0).sum((1, 2)).tolist() == [0, 1, 2]
    minus, excess = torch.zeros_like(x), x.flip(0)
    equation.subtract_solution_(minus, excess, equation.polynomial(9))
    error = torch.linalg.matrix_norm(x @ minus + minus @ x + excess) / torch.linalg.matrix_norm(excess)
    assert float(error.max()) <= DEFLATED_CONTRACTION


def test_no_eigenvalue_is_outlying_in_a_smooth_spectrum():
    x = symmetric(torch.linspace(1.0, 20.0, 100).double(), 0)
    smallest = torch.ones(1, 1, 1, dtype=torch.float64)
    assert Lyapunov(x, smallest, first_probes(x)).outliers is None


def test_factor_models_need_few_exact_steps(monkeypatch):
    cov, roots = factor_model(330), []

    def counted(name):
        root = getattr(admm, name)
        monkeypatch.setattr(admm, name, lambda *inputs: roots.append(1) or root(*inputs))

    counted("half_theta_by_eigh")
    result = graphical_lasso(cov, 0.03, scale="raw", tol=1e-7)
    assert float(result.gap) <= 1e-7 * 330
    assert int(result.n_iter) > 20
    assert len(roots) <= 0.4 * int(result.n_iter)
