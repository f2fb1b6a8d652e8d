"""Latent-variable graphical lasso: optimality conditions, limits, recovery, another solver."""

import numpy as np
import pytest
import torch

import isice.functional as F
from isice.ops.graphical_lasso import NotConvergedWarning


def factor_covariance(size=10, samples=60, factors=2, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    x, loadings, scores = (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in ((size, samples), (size, factors), (factors, samples))
    )
    x = x + 0.5 * x.roll(1, 0) + loadings @ scores
    x = x - x.mean(-1, keepdim=True)
    return (x @ x.mT / samples).to(dtype)


@pytest.mark.parametrize(("samples", "sparsity", "mu"), [(60, 0.2, 0.8), (60, 0.05, 0.12), (6, 0.2, 0.5)])
def test_optimality_conditions_hold(samples, sparsity, mu):
    cov = factor_covariance(samples=samples)
    result = F.latent_graphical_lasso(cov, sparsity, mu, scale="raw", tol=1e-14, max_iter=20000)
    slack = torch.linalg.inv(result.precision) - cov
    off = ~torch.eye(10, dtype=torch.bool)
    on = (slack - sparsity * result.sparse.sign()).abs()
    outside = (slack.abs() - sparsity).clamp(min=0)
    assert float(torch.where(result.sparse != 0, on, outside)[off].max()) < 1e-5
    assert float(slack.diagonal().abs().max()) < 1e-5
    # μI + V is positive semi-definite and orthogonal to L.
    multiplier = slack + mu * torch.eye(10)
    assert float(torch.linalg.eigvalsh(multiplier)[0]) > -1e-5
    assert float((multiplier @ result.low_rank).abs().max()) < 1e-5
    assert float(torch.linalg.eigvalsh(result.low_rank)[0]) > -1e-12
    assert 0 < int(torch.linalg.matrix_rank(result.low_rank, tol=1e-6)) < 10
    assert bool((result.sparse == 0).any())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gap_follows_from_the_matrices_returned_and_bounds_the_error(dtype):
    cov = factor_covariance(dtype=dtype)
    rough = F.latent_graphical_lasso(cov, 0.2, 0.8, scale="raw", tol=1e-3)
    exact = F.latent_graphical_lasso(cov.double(), 0.2, 0.8, scale="raw", tol=1e-12)

    def objective(result):
        sparse, low_rank = result.sparse.double(), result.low_rank.double()
        r = sparse - low_rank
        off = sparse - torch.diag(sparse.diagonal())
        value = (cov.double() * r).sum() - torch.logdet(r) + 0.2 * off.abs().sum() + 0.8 * low_rank.trace()
        return float(value)

    dual = rough.dual.double()
    assert float(rough.gap) == pytest.approx(objective(rough) - float(torch.logdet(dual)) - 10, abs=1e-4)
    assert -1e-5 <= objective(rough) - objective(exact) <= float(rough.gap) + 1e-6
    rounding = 1e-5 if dtype == torch.float32 else 1e-12
    assert float((dual - cov).abs().max()) <= 0.2 + rounding
    assert float(torch.linalg.eigvalsh(dual - cov.double())[0]) >= -0.8 - rounding
    assert rough.sparse.dtype == dtype


def test_a_large_trace_penalty_gives_the_graphical_lasso():
    cov = factor_covariance()
    result = F.latent_graphical_lasso(cov, 0.2, 100.0, scale="raw", tol=1e-12)
    expected = F.graphical_lasso(cov, 0.2, scale="raw", tol=1e-12).precision
    assert not bool(result.low_rank.any())
    torch.testing.assert_close(result.sparse, expected, rtol=1e-4, atol=1e-5)


def test_a_hidden_factor_is_taken_out_of_the_graph():
    size = 12
    chain = torch.eye(size).double() + 0.4 * (torch.eye(size).roll(1, 0) + torch.eye(size).roll(1, 1)).double()
    cov = torch.linalg.inv(chain - 0.12 * torch.ones(size, size))
    result = F.latent_graphical_lasso(cov, 0.05, 0.3, scale="correlation", tol=1e-9)
    plain = F.graphical_lasso(cov, 0.05, scale="correlation", tol=1e-9).precision
    assert int(torch.linalg.matrix_rank(result.low_rank, tol=1e-4)) == 1
    assert bool((result.sparse[chain != 0] != 0).all())
    false_edges, without_latent = ((p[chain == 0] != 0).sum() for p in (result.sparse, plain))
    assert int(false_edges) < 0.3 * int(without_latent)


def test_batch_on_the_correlation_scale_equals_single_problems():
    cov = torch.stack([factor_covariance(seed=s) for s in (1, 2)])
    mu = torch.tensor([0.5, 0.2], dtype=torch.float64)
    units = torch.logspace(-2, 2, 10, dtype=torch.float64)
    scaled = cov * torch.outer(units, units)
    batch = F.latent_graphical_lasso(scaled, 0.1, mu, scale="correlation", tol=1e-9)
    for index in range(2):
        deviation = cov[index].diagonal().sqrt()
        unit = torch.outer(deviation, deviation)
        alone = F.latent_graphical_lasso(cov[index] / unit, 0.1, mu[index], tol=1e-9)
        expected = alone.low_rank / unit / torch.outer(units, units)
        assert float((batch.low_rank[index] - expected).abs().max() / expected.abs().max()) < 1e-6
        assert torch.equal(batch.sparse[index] != 0, alone.sparse != 0)


def test_a_warm_start_needs_fewer_iterations():
    cov = factor_covariance(size=20, samples=40)
    near = F.latent_graphical_lasso(cov, 0.102, 0.5, scale="raw", tol=1e-6)
    cold = F.latent_graphical_lasso(cov, 0.1, 0.5, scale="raw", tol=1e-6)
    warm = F.latent_graphical_lasso(cov, 0.1, 0.5, scale="raw", tol=1e-6, init=near)
    assert int(warm.n_iter) < int(cold.n_iter)


def test_agrees_with_gglasso():
    solver = pytest.importorskip("gglasso.solver.single_admm_solver", reason="gglasso is not installed")
    cov = factor_covariance(size=50, samples=120)
    expected, _ = solver.ADMM_SGL(
        cov.numpy(), 0.2, np.eye(50), tol=1e-10, rtol=1e-10, max_iter=5000, latent=True, mu1=1.0
    )
    result = F.latent_graphical_lasso(cov, 0.2, 1.0, scale="raw", tol=1e-13)
    np.testing.assert_allclose(result.sparse.numpy(), expected["Theta"], atol=1e-5)
    np.testing.assert_allclose(result.low_rank.numpy(), expected["L"], atol=1e-5)


def test_warns_if_not_converged():
    with pytest.warns(NotConvergedWarning, match=r"latent_graphical_lasso: 1 of 1 problems"):
        F.latent_graphical_lasso(factor_covariance(samples=5), 0.001, 0.1, scale="raw", max_iter=2)


def test_an_indefinite_matrix_has_an_infinite_gap():
    with pytest.warns(NotConvergedWarning, match="no positive definite dual point"):
        result = F.latent_graphical_lasso(torch.tensor([[1.0, 2.0], [2.0, 1.0]]), 0.1, 0.1, scale="raw")
    assert torch.isinf(result.gap)


def test_a_batch_may_be_empty():
    result = F.latent_graphical_lasso(torch.ones(0, 3, 3), 0.1, 0.1)
    assert result.precision.shape == result.covariance.shape == result.dual.shape == (0, 3, 3)
    assert result.gap.shape == result.n_iter.shape == (0,)


def test_rejects_invalid_penalties_and_gradients():
    with pytest.raises(ValueError, match=r"got shapes that do not broadcast: trace_penalty \(2,\)"):
        F.latent_graphical_lasso(torch.eye(3).expand(4, 3, 3), 0.1, torch.ones(2))
    with pytest.raises(ValueError, match=r"finite trace_penalty > 0, got 0.0"):
        F.latent_graphical_lasso(torch.eye(3), 0.1, 0.0)
    with pytest.raises(ValueError, match="finite weights ≥ 0"):
        F.latent_graphical_lasso(torch.eye(3), 0.1, 0.1, weights=torch.full((3, 3), torch.inf))
    with pytest.raises(ValueError, match="not differentiable"):
        F.latent_graphical_lasso(torch.eye(3, requires_grad=True), 0.1, 0.1)
    with pytest.raises(ValueError, match="not differentiable"):
        F.latent_graphical_lasso(torch.eye(3), torch.tensor(0.1, requires_grad=True), 0.1)
