"""Proximal Newton method of sparse problems."""

import pytest
import torch
from torch import Tensor

from isice.ops.graphical_lasso import graphical_lasso, graphical_lasso_reference
from isice.ops.graphical_lasso.newton import Iterate, Model, Pattern, links, local_start, newton
from isice.ops.graphical_lasso.solver import solve


def sampled(root: Tensor, samples: int) -> Tensor:
    """Return the correlations of Gaussian samples with covariance root·rootᵀ."""
    generator = torch.Generator().manual_seed(0)
    return torch.corrcoef(root @ torch.randn(len(root), samples, generator=generator, dtype=torch.float64))


def chain(size: int) -> Tensor:
    place = torch.arange(size, dtype=torch.float64)
    return sampled(torch.linalg.cholesky(0.6 ** (place[:, None] - place).abs()), 40 * size)


def uniform_penalty(cov: Tensor, sparsity: float) -> Tensor:
    return torch.full_like(cov, sparsity).fill_diagonal_(0.0)


@pytest.mark.parametrize("sparsity", [0.3, 0.1])
def test_a_sparse_problem_takes_a_few_steps_and_agrees_with_the_oracle(sparsity: float) -> None:
    cov = chain(80)
    result = graphical_lasso(cov, sparsity, tol=1e-9)
    assert int(result.n_iter) <= 5
    torch.testing.assert_close(result.precision, graphical_lasso_reference(cov, sparsity), atol=5e-4, rtol=0)
    torch.testing.assert_close(result.covariance @ result.precision, torch.eye(80, dtype=torch.float64))


def test_the_gap_is_that_of_the_returned_matrices() -> None:
    cov = chain(80)
    result, penalty = graphical_lasso(cov, 0.2), uniform_penalty(cov, 0.2)
    assert bool(((result.dual - cov).abs() <= penalty + 1e-15).all())
    primal = (cov * result.precision + penalty * result.precision.abs()).sum() - torch.logdet(result.precision)
    torch.testing.assert_close(result.gap, primal - torch.logdet(result.dual) - 80, atol=1e-11, rtol=0)
    assert float(result.gap) <= 1e-4 * 80


def test_the_start_is_exact_on_a_forest() -> None:
    """A star and a path, whose products of correlations are below λ."""
    cov = torch.eye(80, dtype=torch.float64)
    for i in range(1, 10):
        cov[0, i] = cov[i, 0] = 0.2 + 0.03 * i
    for i in range(20, 35):
        cov[i, i + 1] = cov[i + 1, i] = 0.35
    result = graphical_lasso(cov, 0.15, tol=1e-9)
    assert int(result.n_iter) == 0
    assert float(result.gap) <= 1e-9 * 80


def test_weights_and_unpenalized_entries() -> None:
    cov = chain(80)
    weights = torch.ones_like(cov)
    weights[0, 1] = weights[1, 0] = 0.0
    weights[5, 6] = weights[6, 5] = 3.0
    result = graphical_lasso(cov, 0.25, weights=weights, tol=1e-9)
    expected = graphical_lasso_reference(cov, 0.25, weights=weights)
    torch.testing.assert_close(result.precision, expected, atol=5e-4, rtol=0)


def test_a_dense_problem_is_left_to_admm() -> None:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(80, 3, generator=generator, dtype=torch.float64)
    cov = sampled(torch.cat([features, 0.5 * torch.eye(80, dtype=torch.float64)], 1)[:, :80], 40)
    assert links(cov, uniform_penalty(cov, 0.03)) is None
    assert float(graphical_lasso(cov, 0.03).gap) <= 1e-4 * 80


def test_a_failed_newton_method_is_no_failure_of_the_solver() -> None:
    """An indefinite start: Newton's method gives up, ADMM solves the problem."""
    cov = chain(80)
    penalty = uniform_penalty(cov, 0.2)
    indefinite = -torch.eye(80, dtype=torch.float64)
    assert newton(cov, penalty, 1e-4 * 80, Iterate.of(indefinite)) is None
    outputs = solve(cov[None], penalty[None], 1e-4, 500, torch.stack([indefinite, indefinite])[None])
    assert float(outputs.gap) <= 1e-4 * 80


def test_a_variable_with_many_neighbours() -> None:
    """The start keeps the strongest sixteen of them."""
    root = torch.eye(80, dtype=torch.float64)
    root[1:40, 0] = 0.6
    cov = sampled(root, 400)
    penalty = uniform_penalty(cov, 0.35)
    graph = links(cov, penalty)
    assert graph is not None
    theta = local_start(cov, penalty, graph)
    assert torch.equal(theta, theta.mT)
    assert float(graphical_lasso(cov, 0.35, tol=1e-8).gap) <= 1e-8 * 80


def test_the_certificate_of_a_float32_problem_holds() -> None:
    """The dual of Newton's method is not at its bound wherever Θ is small but not zero."""
    for seed in (0, 8, 10):
        generator = torch.Generator().manual_seed(seed)
        cov = torch.stack([torch.corrcoef(torch.randn(80, 200, generator=generator)) for _ in range(4)])
        assert float(graphical_lasso(cov, 0.1, tol=1e-6).gap.max()) <= 1e-6 * 80


def test_the_model_has_no_subnormal_numbers() -> None:
    """The inverse of a chain decays below the smallest float32, which slows products down."""
    size = 300
    theta = torch.eye(size, dtype=torch.float64)
    theta.diagonal(1).fill_(-0.3)
    theta.diagonal(-1).fill_(-0.3)
    iterate = Iterate.of(theta)
    assert iterate is not None
    assert float(iterate.inverse.abs().min()) < torch.finfo(torch.float32).tiny
    model = Model(Pattern.of(theta != 0), iterate.inverse, theta, iterate.inverse - theta, uniform_penalty(theta, 0.1))
    entries = model.inverse[model.inverse != 0].abs()
    assert float(entries.min()) > 1e-16
    torch.testing.assert_close(model.inverse.double(), iterate.inverse, rtol=1e-6, atol=1e-15)
