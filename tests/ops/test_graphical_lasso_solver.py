"""The parts of the solver: Θ-step, start, screening into blocks, continuation in float64."""

import numpy as np
import pytest
import torch

from isice.ops.graphical_lasso import graphical_lasso_reference
from isice.ops.graphical_lasso.admm import Strategy, admm
from isice.ops.graphical_lasso.screening import blocks_by_size, component_labels
from isice.ops.graphical_lasso.solver import solve
from isice.ops.graphical_lasso.start import cold_start
from isice.ops.graphical_lasso.theta_step import _root_polynomials, half_theta_by_eigh, half_theta_by_newton_schulz

from .correlations import KINDS, off_diagonal, off_penalty, sample_cov
from .raw_scale import graphical_lasso


def test_newton_schulz_steps_give_the_same_solution():
    cov = sample_cov(40, 20, batch=(2,), relu=True)
    correlation = cov / torch.sqrt(cov.diagonal(dim1=1, dim2=2)[:, :, None] * cov.diagonal(dim1=1, dim2=2)[:, None])
    penalty = torch.stack([off_penalty(40, sparsity) for sparsity in (0.1, 0.02)])
    by_eigh = solve(correlation, penalty, 1e-7, 500, strategy=Strategy("eigh"))
    by_products = solve(correlation, penalty, 1e-7, 500, strategy=Strategy("newton_schulz"))
    torch.testing.assert_close(by_products[0], by_eigh[0], rtol=1e-6, atol=1e-8)
    assert torch.equal(by_products[3], by_eigh[3])
    torch.testing.assert_close(by_products[1], by_eigh[1], rtol=1e-6, atol=1e-8)
    products = Strategy("newton_schulz", inverse="products")
    single = solve(correlation.float(), penalty.float(), 1e-4, 500, strategy=products)
    assert bool((single[2] <= 1e-4 * 40).all())
    assert float((single[0] @ single[1] - torch.eye(40)).abs().max()) < 1e-3


@pytest.mark.parametrize("sparsity", [0.0, 1e-30, 1e-12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_matrix_without_penalty_does_not_disturb_its_batch_on_a_gpu(dtype, sparsity):
    cov, penalty = KINDS["sparse"](40, 2, 0).to(dtype), off_penalty(40, 0.05).expand(2, 40, 40).to(dtype).clone()
    penalty[0] = off_penalty(40, sparsity)
    strategy = Strategy("newton_schulz", inverse="products", float32_first=True, accelerate=dtype == torch.float64)
    found, alone = (solve(cov[i:], penalty[i:], 1e-4, 100, strategy=strategy) for i in (0, 1))
    assert bool((found.gap <= 1e-4 * 40).all())
    torch.testing.assert_close(found.precision[0], torch.linalg.inv(cov[0]), rtol=0, atol=0.1)
    torch.testing.assert_close(found.precision[1], alone.precision[0], rtol=0, atol=1e-2)
    assert int(found.n_iter[0]) <= 20
    assert int(found.n_iter[1]) == int(alone.n_iter)


def test_a_matrix_without_penalty_costs_the_others_no_iterations():
    cov, grid = KINDS["sparse"](2, 20, 0), torch.linspace(0, 0.4, 20, dtype=torch.float64)
    penalty = grid[:, None, None] * off_penalty(2, 1.0)
    strategy = Strategy("newton_schulz", inverse="products", float32_first=True, accelerate=True)
    found, others = (solve(cov[i:], penalty[i:], 1e-6, 100, strategy=strategy) for i in (0, 1))
    assert found.n_iter.tolist() == [0, *others.n_iter.tolist()]
    torch.testing.assert_close(found.precision[0], torch.linalg.inv(cov[0]))


@pytest.mark.parametrize("rho", [1e-4, 1e-2, 1.0, 1e3])
def test_roots_by_products_are_those_by_eigenvalues(rho):
    b = torch.randn(3, 30, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    b, rho = b + b.mT, torch.full((3, 1, 1), rho, dtype=torch.float64)
    theta = 2 * half_theta_by_eigh(b, rho)
    torch.testing.assert_close(torch.linalg.inv(theta) - rho * theta, b, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(2 * half_theta_by_newton_schulz(b, rho), theta, rtol=1e-6, atol=1e-9 * theta.abs().max())
    single = 2 * half_theta_by_newton_schulz(b.float(), rho.float()).double()
    assert float((single - theta).norm() / theta.norm()) < 1e-3


@pytest.mark.parametrize("lower", [0.999, 0.7, 0.1, 0.01, 1e-5])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 2e-4), (torch.float64, 1e-10)])
def test_the_polynomials_of_the_root_take_their_interval_to_one(lower, dtype, error):
    x = np.geomspace(lower, 1, 2000)
    for coefficients in _root_polynomials(lower, dtype):
        x = sum(c * x ** (2 * k + 1) for k, c in enumerate(coefficients))
    assert np.abs(x - 1).max() < error


@pytest.mark.parametrize(("inverse", "theta_step"), [("cholesky", "eigh"), ("products", "newton_schulz")])
@pytest.mark.parametrize("sparsity", [2.0, 0.2, 0.01])
def test_admm_begins_with_a_positive_definite_guess_and_a_point_in_the_box(inverse, theta_step, sparsity):
    cov = graphical_lasso(sample_cov(40, 20, batch=(3,), relu=True), 1e-3, scale="correlation").covariance
    cov = cov / torch.sqrt(cov.diagonal(dim1=1, dim2=2)[:, :, None] * cov.diagonal(dim1=1, dim2=2)[:, None])
    penalty = off_penalty(40, sparsity).expand(3, 40, 40)
    start = cold_start(cov, penalty, inverse=inverse)
    assert bool((torch.linalg.cholesky_ex(start.precision).info == 0).all())
    assert torch.equal(start.precision, start.precision.mT)
    assert bool(((start.dual - cov).abs() <= penalty * (1 + 1e-15) + 1e-15).all())
    if sparsity > 1:
        torch.testing.assert_close(start.dual, torch.eye(40, dtype=cov.dtype).expand(3, 40, 40))
    solution = admm(cov, penalty, torch.full((3,), 1e-4 * 40), start, max_iter=40, strategy=Strategy(theta_step))
    assert bool((solution.gap <= 1e-4 * 40).all())


def test_blocks_are_solved_apart_and_join_exactly():
    parts = [sample_cov(size, 30, seed=size) for size in (5, 1, 3, 7)]
    cov = torch.block_diag(*parts)
    order = torch.randperm(16, generator=torch.Generator().manual_seed(0))
    result = graphical_lasso(cov[order][:, order], 0.05, tol=1e-12)
    inverse_order = torch.argsort(order)
    whole = result.precision[inverse_order][:, inverse_order]
    expected = torch.block_diag(*(graphical_lasso_reference(part, 0.05) for part in parts))
    torch.testing.assert_close(whole, expected, rtol=1e-6, atol=1e-7)
    assert torch.equal(whole != 0, expected != 0)


def test_screening_groups_components_by_padded_size():
    labels = component_labels(torch.block_diag(*(sample_cov(size, 30, seed=size) for size in (9, 1, 3, 20)))[None], 0.0)
    assert sorted(torch.unique(labels, return_counts=True)[1].tolist()) == [1, 3, 9, 20]
    found = {}
    for blocks in blocks_by_size(labels):
        for variables, size in zip(blocks.variables, blocks.n_real.tolist(), strict=True):
            found[size] = sorted(variables[:size].tolist())
            assert len(variables) >= size
    assert found == {9: list(range(9)), 3: list(range(10, 13)), 20: list(range(13, 33))}


@pytest.mark.parametrize("theta_step", ["eigh", "newton_schulz"])
def test_what_float32_does_not_finish_is_continued_in_float64(theta_step):
    vector = torch.linspace(1, 2, 24)
    penalty = (0.005 / torch.outer(vector, vector) * off_diagonal(24))[None]
    precision, covariance, gap, n_iter, _ = solve(
        torch.ones(1, 24, 24), penalty, 1e-4, 1000, strategy=Strategy(theta_step)
    )
    assert int(n_iter) > 100
    assert float(gap) <= 1e-4 * 24
    assert precision.dtype == torch.float32
    assert float((precision.double() @ covariance.double() - torch.eye(24)).abs().max()) < 1e-2
