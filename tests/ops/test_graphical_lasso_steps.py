"""ADMM's step from the step before: accuracy, refusal, and what float32 can do with it."""

import math
from functools import partial

import numpy as np
import pytest
import torch

from isice.ops.correlation import correlation
from isice.ops.covariance import covariance
from isice.ops.graphical_lasso import graphical_lasso, solver
from isice.ops.graphical_lasso.admm import Strategy, admm
from isice.ops.graphical_lasso.certificate import (
    cholesky,
    duality_gap,
    duality_gap_and_inverse,
    estimated_gap,
    rough_gap,
)
from isice.ops.graphical_lasso.lyapunov import CONTRACTION, random_probes
from isice.ops.graphical_lasso.start import cold_start
from isice.ops.graphical_lasso.theta_step import Guard, correct_theta_, half_theta_by_eigh

from .correlations import KINDS

# The covariance's own unit, and the tolerance of a layer.
graphical_lasso = partial(graphical_lasso, scale="raw", tol=1e-4)


def root_and_neighbour(size=40, change=1e-3):
    """B and ρ, the root Θ of Θ⁻¹ − ρΘ = B, and that of a B nearby."""
    generator = torch.Generator().manual_seed(0)
    b = torch.randn(3, size, size, generator=generator, dtype=torch.float64)
    near = b + change * torch.randn(3, size, size, generator=generator, dtype=torch.float64)
    rho = torch.tensor([1.0, 3.0, 9.0], dtype=torch.float64)[:, None, None]
    b, near = b + b.mT, near + near.mT
    return b, rho, 2 * half_theta_by_eigh(b, rho), 2 * half_theta_by_eigh(near, rho)


def after_iterations(count, cov, penalty):
    """Return the iterate of ADMM after some iterations."""
    start, bound = cold_start(cov, penalty, inverse="cholesky"), torch.full((len(cov),), 1e-30)
    strategy = Strategy("newton_schulz", reuse_theta=True, certificate="estimate")
    return admm(cov, penalty, bound, start, max_iter=count, strategy=strategy)


def norms(matrix):
    return torch.linalg.matrix_norm(matrix)


def test_a_step_leaves_a_part_of_a_small_error_and_steps_end_at_the_root():
    b, rho, theta, near = root_and_neighbour()
    guess = 0.5 * (near + near.mT)
    before = norms(guess - theta)
    assert correct_theta_(guess, b.clone(), rho, iteration=9)
    assert bool((norms(guess - theta) <= 1.1 * CONTRACTION * before).all())
    assert torch.equal(guess, guess.mT)
    for _ in range(30):
        assert correct_theta_(guess, b.clone(), rho, iteration=9)
    torch.testing.assert_close(guess, theta, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("factor", "rho_factor"), [(20.0, 1.0), (1.0, 1e-6)])
def test_correct_theta_keeps_distant_or_ill_conditioned_matrices(factor, rho_factor):
    b, rho, theta, _ = root_and_neighbour()
    guess, untouched = factor * theta, b.clone()
    guess = 0.5 * (guess + guess.mT)
    before = guess.clone()
    assert not correct_theta_(guess, untouched, rho_factor * rho, iteration=9)
    assert torch.equal(guess, before)
    torch.testing.assert_close(untouched, b, rtol=1e-9, atol=1e-9)


def test_failed_corrections_pause_until_one_succeeds():
    b, rho, theta, _ = root_and_neighbour()
    far, guard, attempts = 20.0 * theta, Guard(), []
    for iteration in range(1, 30):
        if not guard.pauses(iteration):
            attempts.append(iteration)
        assert not correct_theta_(far, b.clone(), rho, iteration, guard)
    assert attempts == [1, 2, 3, 4, 5, 7, 10, 14, 19, 25]
    assert correct_theta_(theta.clone(), b.clone(), rho, 32, guard)
    assert not guard.pauses(33)


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 0.1), (torch.float32, 0.1)])
def test_the_estimate_of_the_gap_is_near_the_gap(dtype, rtol):
    exact = KINDS["relu"](48, 2, 0)
    penalty = torch.full_like(exact, 0.25)  # a number of float32
    penalty.diagonal(dim1=1, dim2=2).zero_()
    cov = exact.to(dtype)
    solution = after_iterations(15, cov, penalty.to(dtype))
    gap = duality_gap(cov.double(), penalty, solution.precision.double(), solution.dual.double())
    assert bool((gap < 1e-4 * 48).all())
    torch.testing.assert_close(estimated_gap(solution.precision, solution.dual).double(), gap, rtol=rtol, atol=1e-9)


def test_the_estimate_holds_at_the_gap_of_a_layer():
    """An eigenvalue of ZW of 0.6, whose gap a second-order estimate misses by a fifth."""
    dual = torch.eye(8)[None]
    precision = torch.diag(torch.tensor([0.6] + 7 * [1.0]))[None]
    gap = -0.4 - math.log(0.6)
    assert float(estimated_gap(precision, dual)) == pytest.approx(gap, rel=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_the_rough_gap_tells_far_from_near(kind):
    cov = KINDS[kind](128, 3, 0)
    penalty = torch.full_like(cov, 0.05)
    penalty.diagonal(dim1=-2, dim2=-1).zero_()
    for iterations in range(1, 6):
        z, dual, *_ = after_iterations(iterations, cov, penalty)
        ratio = rough_gap(z, dual, random_probes(128)) / estimated_gap(z, dual)
        assert bool(((ratio > 0.5) & (ratio < 2)).all())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_matrix_with_an_entry_that_is_not_finite_gives_nan(bad):
    cov = KINDS["sparse"](5, 3, 0)
    cov[1, 2, 3] = bad
    result = graphical_lasso(cov, 0.1, check_input=False)
    assert result.gap.isnan().tolist() == [False, True, False]
    assert result.precision[[0, 2]].isfinite().all()


def test_gap_and_inverse_from_one_factor_are_those_from_two():
    cov = KINDS["sparse"](30, 2, 0)
    precision = torch.linalg.inv(cov) + 0.1 * torch.eye(30, dtype=torch.float64)
    precision = 0.5 * (precision + precision.mT)
    precision[1] -= 100 * torch.eye(30, dtype=torch.float64)
    gap, inverse = duality_gap_and_inverse(cov, torch.zeros_like(cov), precision, cov)
    assert torch.equal(gap, duality_gap(cov, torch.zeros_like(cov), precision, cov))
    torch.testing.assert_close(inverse[0], torch.linalg.inv(precision[0]))
    assert torch.equal(inverse[1], cov[1])
    assert torch.isinf(gap[1])


@pytest.mark.parametrize("kind", KINDS)
def test_float32_goes_all_the_way_and_float64_only_proves_it(kind, monkeypatch):
    seen = []

    def recording(cov, *args, **options):
        seen.append(cov.dtype)
        return admm(cov, *args, **options)

    admm = solver.admm
    monkeypatch.setattr(solver, "admm", recording)
    # 0.03 is not a number of float32, and a bound that is missed by its rounding would cost 1e-8.
    result = graphical_lasso(KINDS[kind](96, 3, 0), 0.03, tol=1e-9)
    assert bool((result.gap <= 1e-9 * 96).all())
    assert set(seen) == {torch.float32}


@pytest.mark.parametrize("size", [127, 128])
def test_factors_are_those_of_the_matrix_whatever_its_size(size):
    cov = KINDS["sparse"](size, 2, 0)
    cov[1, -1, -1] = -1.0
    factor, info = cholesky(cov)
    torch.testing.assert_close(factor[0], torch.linalg.cholesky(cov[0]))
    assert int(info[0]) == 0
    assert int(info[1]) > 0


def test_corrected_steps_converge_on_singular_correlations_with_a_strong_common_factor():
    """Rectified features of fewer positions than channels, as a network has them."""
    generator = torch.Generator().manual_seed(1)
    loadings = torch.randn(2, 192, 8, generator=generator)
    factors = torch.randn(2, 8, 100, generator=generator) + 1
    features = (loadings @ factors + 0.5 * torch.randn(2, 192, 100, generator=generator)).relu()
    cov = correlation(covariance(features))  # a dead channel has no correlation
    result = graphical_lasso(cov, 0.1)
    assert int(result.n_iter.max()) <= 80  # with exact Θ-steps about 45
    for s, theta, w in zip(*(t.double().numpy() for t in (cov, result.precision, result.dual)), strict=True):
        assert np.abs(w - s).max() <= 0.1 + 1e-6
        np.testing.assert_allclose(w.diagonal(), 1.0, atol=1e-6)
        penalty = 0.1 * (np.abs(theta).sum() - np.trace(theta))
        primal = (s * theta).sum() + penalty - np.linalg.slogdet(theta)[1]
        assert primal - np.linalg.slogdet(w)[1] - 192 <= 1.01 * 1e-4 * 192


def test_corrections_that_stall_are_replaced_by_exact_steps():
    generator = torch.Generator().manual_seed(0)
    loadings, scores, noise = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((300, 5), (5, 150), (300, 150))
    )
    cov = torch.corrcoef(loadings @ scores + noise)[None]
    penalty = 0.1 * (1 - torch.eye(300, dtype=torch.float64))[None]
    exact = solver.solve(cov, penalty, 1e-7, 1000, strategy=Strategy("eigh"))
    default = solver.solve(cov, penalty, 1e-7, 1000)
    assert int(default.n_iter) <= 1.5 * int(exact.n_iter)
