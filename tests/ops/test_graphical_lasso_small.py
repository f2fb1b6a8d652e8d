"""ADMM for one small matrix: its start, its Θ-steps, and float32 with float64 behind it."""

import math

import numpy as np
import pytest
import torch

from isice.ops.graphical_lasso import graphical_lasso, small
from isice.ops.graphical_lasso.certificate import duality_gap
from isice.ops.graphical_lasso.lyapunov import CONTRACTION, FIRST_CONTRACTION, FIRST_ITERATIONS
from isice.ops.graphical_lasso.small import SmallAdmm, small_admm
from isice.ops.graphical_lasso.small_theta_step import Eigenbasis, SmallThetaStep, inverse_series
from isice.ops.graphical_lasso.theta_step import half_theta_by_eigh

from .correlations import KINDS, off_penalty


def equation(size: int, condition: float, dtype: type) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X with eigenvalues from 0.5 to 0.5·condition, Δ and E = XΔ + ΔX."""
    generator = np.random.default_rng(0)
    vectors = np.linalg.qr(generator.standard_normal((size, size)))[0]
    x = vectors * np.geomspace(0.5, 0.5 * condition, size) @ vectors.T
    solution = generator.standard_normal((size, size))
    x, solution = 0.5 * (x + x.T), solution + solution.T
    return x.astype(dtype), solution.astype(dtype), (x @ solution + solution @ x).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("iteration", [1, FIRST_ITERATIONS + 1])
@pytest.mark.parametrize("condition", [1.0, 3.0, 30.0, 60.0])
def test_a_series_reduces_the_error_as_much_as_promised(condition: float, iteration: int, dtype: type) -> None:
    x, solution, excess = equation(20, condition, dtype)
    series = inverse_series(condition, iteration)
    assert series is not None
    half = series.half_solution(x.copy(), excess, 0.5)
    error = np.linalg.norm(half + half.T - solution) / np.linalg.norm(solution)
    assert error <= 1.001 * (FIRST_CONTRACTION if iteration <= FIRST_ITERATIONS else CONTRACTION)


@pytest.mark.parametrize("condition", [1e3, 1e9, math.inf, math.nan])
def test_far_roots_have_no_series(condition: float) -> None:
    assert inverse_series(condition, 5) is None


def test_a_basis_solves_the_equation_of_its_matrix() -> None:
    x, solution, excess = equation(20, 100.0, np.float64)
    half = Eigenbasis.of(x, 0.5).half_solution(excess)
    np.testing.assert_allclose(half + half.T, solution, atol=1e-12)


@pytest.mark.parametrize("settled", [0, 100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_theta_steps_converge_to_the_root(dtype: type, settled: int) -> None:
    generator = torch.Generator().manual_seed(0)
    b = torch.randn(40, 40, generator=generator, dtype=torch.float64)
    b, rho = b + b.mT, torch.tensor([[0.5]], dtype=torch.float64)
    half = half_theta_by_eigh(b, rho)
    root = (half + half.mT).numpy()
    step = SmallThetaStep((root + 0.05 * np.eye(40)).astype(dtype), settled)
    for iteration in range(FIRST_ITERATIONS + 1, FIRST_ITERATIONS + 13):
        theta = step(b.numpy().astype(dtype), 0.5, iteration)
        np.testing.assert_array_equal(theta, theta.T)
    np.testing.assert_allclose(theta, root, rtol=0, atol=2e-5 if dtype == np.float32 else 1e-7)
    assert (step.basis is None) == (settled == 100)


@pytest.mark.parametrize("kind", ["sparse", "relu"])
@pytest.mark.parametrize("sparsity", [0.3, 0.03])
def test_float32_and_float64_certify_the_same_solution(
    kind: str, sparsity: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    cov, penalty = KINDS[kind](40, 1, 0)[0], off_penalty(40, sparsity)
    solutions = []
    for margin in (0.0, math.inf):
        monkeypatch.setattr(small, "SINGLE_MARGIN", margin)
        solution, inverse = small_admm(cov, penalty, 1e-6, None, 500)
        assert 0 <= float(solution.gap) <= 1e-6
        torch.testing.assert_close(solution.gap, duality_gap(cov[None], penalty[None], *solution[:2]))
        assert bool(((solution.dual - cov).abs() <= penalty + 1e-15).all())
        assert torch.equal(solution.precision, solution.precision.mT)
        torch.testing.assert_close(solution.precision @ inverse, torch.eye(40).double()[None])
        solutions.append(solution.precision)
    torch.testing.assert_close(*solutions, rtol=0, atol=0.02)


def test_float64_continues_where_float32_does_not_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    dtypes, init = [], SmallAdmm.__init__

    def record(self, s, upper, dtype, *args, **options):
        dtypes.append(dtype)
        init(self, s, upper, dtype, *args, **options)

    monkeypatch.setattr(SmallAdmm, "__init__", record)
    monkeypatch.setattr(small, "SINGLE_MARGIN", 0.0)
    cov, penalty = KINDS["relu"](40, 1, 0)[0], off_penalty(40, 0.003)
    solution, _ = small_admm(cov, penalty, 1e-10, None, 500)
    assert dtypes == [np.float32, np.float64]
    assert float(solution.gap) <= 1e-10
    few, _ = small_admm(cov, penalty, 1e-10, None, 7)
    assert int(few.n_iter) == 7


@pytest.mark.parametrize("sparsity", [0.5, 0.9])
def test_a_start_that_is_optimal_takes_no_iteration(sparsity: float) -> None:
    cov = torch.eye(6, dtype=torch.float64)
    cov[0, 1] = cov[1, 0] = 0.6
    result = graphical_lasso(cov, sparsity, tol=1e-2)
    assert int(result.n_iter) == 0
    assert int((result.precision != 0).sum()) == (8 if sparsity < 0.6 else 6)
    assert float(result.gap) <= 1e-14
