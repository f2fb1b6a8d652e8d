"""Paths over λ: the solutions of cold starts, with certificates, in fewer iterations."""

import math

import pytest
import torch

from isice.ops.graphical_lasso import graphical_lasso, graphical_lasso_path, sparsity_max
from isice.ops.graphical_lasso.newton import Iterate, Model, Pattern
from isice.ops.graphical_lasso.path import Point, extrapolated

from .correlations import sparse_model

TOL = 1e-5


def chain(size, generator):
    place = torch.arange(size, dtype=torch.float64)
    root = torch.linalg.cholesky(0.6 ** (place[:, None] - place).abs())
    return root @ torch.randn(size, 4 * size, generator=generator, dtype=torch.float64)


def factors(size, generator):
    loadings = torch.randn(size, 5, generator=generator, dtype=torch.float64)
    scores = torch.randn(5, size // 2, generator=generator, dtype=torch.float64)
    return loadings @ scores + torch.randn(size, size // 2, generator=generator, dtype=torch.float64)


def matrix(kind, size):
    if kind == "sparse":
        return sparse_model(size, 1, 0)[0]
    return torch.corrcoef((chain if kind == "chain" else factors)(size, torch.Generator().manual_seed(0)))


def grid_of(cov, count=12, scale="raw"):
    return sparsity_max(cov, scale=scale) * torch.logspace(0, -1.3, count, dtype=torch.float64)


def recomputed_gap(cov, penalty, result):
    """Duality gap from its definition; the dual point must be feasible."""
    assert bool(((result.dual - cov).abs() <= penalty + 1e-12 * (penalty + cov.abs())).all())
    theta = result.precision
    linear = (cov * theta).sum((-2, -1)) + (penalty * theta.abs()).sum((-2, -1))
    return linear - torch.logdet(theta) - torch.logdet(result.dual) - cov.shape[-1]


@pytest.mark.parametrize("size", [60, 80])  # the larger ones begin with Newton's method
@pytest.mark.parametrize("kind", ["sparse", "chain", "factors"])
def test_a_path_has_the_solutions_of_cold_starts_in_fewer_iterations(kind, size):
    cov = matrix(kind, size)
    grid = grid_of(cov)
    path = graphical_lasso_path(cov, grid, tol=TOL, scale="raw")
    cold = [graphical_lasso(cov, value, tol=TOL, scale="raw") for value in grid]
    penalty = grid[:, None, None] * (1 - torch.eye(size, dtype=torch.float64))
    assert float(path.gap.max()) <= TOL * size
    torch.testing.assert_close(path.gap, recomputed_gap(cov, penalty, path), rtol=0, atol=1e-10)
    torch.testing.assert_close(path.covariance, torch.linalg.inv(path.precision), rtol=0, atol=1e-8)
    # The objective is strongly convex: two solutions with small gaps are close.
    distance = (path.precision - torch.stack([c.precision for c in cold])).square().sum((-2, -1))
    largest = torch.linalg.matrix_norm(path.precision, ord=2)
    assert bool((distance <= 16 * TOL * size * (1.1 * largest).square()).all())
    share = 0.9 if kind == "sparse" else 0.7  # cold starts are good on a sparse graph
    assert int(path.n_iter.sum()) <= share * sum(int(c.n_iter) for c in cold)


def test_a_step_along_a_path_needs_two_factors(monkeypatch):
    """That of the solution, from which the next one starts, and that of its dual point."""
    cov, calls, factorize = matrix("chain", 80), [], torch.linalg.cholesky_ex
    grid = grid_of(cov, 20)[:16]  # where the graph is sparse
    monkeypatch.setattr(torch.linalg, "cholesky_ex", lambda *args: calls.append(1) or factorize(*args))
    path = graphical_lasso_path(cov, grid, tol=1e-4, scale="raw")
    assert int(path.n_iter.sum()) <= 20
    assert len(calls) <= 2.5 * len(grid)


def test_a_path_of_a_batch_with_weights_and_other_units():
    cov = torch.stack([matrix("chain", 40), matrix("factors", 40)])
    deviation = torch.linspace(0.1, 10, 40, dtype=torch.float64)
    cov = cov * deviation[:, None] * deviation
    weights = torch.ones(40, 40, dtype=torch.float64)
    weights[0, 1] = weights[1, 0] = 0.0
    grid = torch.tensor([0.1, 0.6, 0.3], dtype=torch.float64)
    path = graphical_lasso_path(cov, grid, weights=weights, tol=TOL, scale="correlation")
    unit = weights * (deviation[:, None] * deviation) * (1 - torch.eye(40, dtype=torch.float64))
    assert path.precision.shape == (3, 2, 40, 40)
    torch.testing.assert_close(path.gap, recomputed_gap(cov, grid[:, None, None, None] * unit, path), rtol=0, atol=1e-9)
    assert float(path.gap.max()) <= TOL * 40


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("matrix_on", "grid_on"), [("cpu", "cuda"), ("cuda", "cpu")])
def test_the_grid_may_be_on_another_device(matrix_on, grid_on):
    cov, grid = matrix("chain", 60).to(matrix_on), torch.tensor([0.3, 0.1], device=grid_on)
    path = graphical_lasso_path(cov, grid, tol=TOL, scale="raw")
    assert path.precision.device.type == matrix_on
    assert float(path.gap.max()) <= TOL * 60


@pytest.mark.parametrize(
    "options", [{"penalize_diagonal": True}, {"polish": True}, {"tol": 1e-10}, {"dtype": torch.float32}]
)
def test_other_options_take_the_general_route_to_the_same_solutions(options):
    options = {"tol": TOL, **options}
    cov = matrix("chain", 40).to(options.pop("dtype", torch.float64))
    grid = grid_of(cov.double(), 5)
    path = graphical_lasso_path(cov, grid, scale="raw", **options)
    for value, precision in zip(grid, path.precision, strict=True):
        cold = graphical_lasso(cov, value, scale="raw", **{**options, "tol": min(options["tol"], 1e-6)})
        torch.testing.assert_close(precision, cold.precision, rtol=0, atol=2e-2)


def test_gradients_flow_through_a_path():
    cov = matrix("chain", 32).requires_grad_()
    graphical_lasso_path(cov, [0.3, 0.2], scale="raw").precision.sum().backward()
    assert cov.grad is not None
    assert bool(torch.isfinite(cov.grad).all())


@pytest.mark.parametrize("grid", [[0.3, -0.1], [0.3, math.nan], [math.inf, 0.3]])
def test_a_path_refuses_bad_sparsities(grid):
    with pytest.raises(ValueError, match="expected"):
        graphical_lasso_path(matrix("chain", 32), grid, scale="raw")


def test_a_path_down_to_zero_ends_at_the_inverse():
    cov = matrix("chain", 32)
    path = graphical_lasso_path(cov, [0.2, 0.05, 0.0], scale="raw")
    torch.testing.assert_close(path.precision[-1], torch.linalg.inv(cov), rtol=0, atol=1e-3)


def test_dense_and_sparse_products_with_the_curvature_agree():
    cov = matrix("sparse", 120)
    penalty = 0.3 * (1 - torch.eye(120, dtype=torch.float64))
    now = Iterate.of(graphical_lasso(cov, 0.3, scale="raw").precision)
    assert now is not None
    excess = now.inverse - cov
    model = Model(Pattern.of(now.theta != 0), now.inverse, now.theta, excess, penalty)
    assert model.layout is not None
    values = torch.randn(len(model.values), generator=torch.Generator().manual_seed(0))
    values = values + values[model.pattern.transposed]
    sparse = model._curve(values)
    model.layout = None
    torch.testing.assert_close(model._curve(values), sparse, rtol=1e-4, atol=1e-4)


def test_an_extrapolation_beyond_definiteness_takes_shorter_steps():
    eye, coupled = torch.eye(2), torch.tensor([[1.0, 0.7], [0.7, 1.0]])
    points = [Point(0.9, eye[None], eye[None]), Point(0.5, coupled[None], eye[None])]
    precision, _ = extrapolated(eye[None], points, 0.1)  # a full step gives 1.4 off the diagonal
    assert 0.7 < float(precision[0, 0, 1]) < 1.0
