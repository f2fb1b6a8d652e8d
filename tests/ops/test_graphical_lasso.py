"""The solver: optimality conditions, certificates, closed forms, other solvers, hard input."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import graphical_lasso as sklearn_graphical_lasso

from isice.ops.graphical_lasso import (
    GraphicalLassoResult,
    NotConvergedWarning,
    graphical_lasso_reference,
)

from .correlations import KINDS, off_diagonal, off_penalty, sample_cov
from .raw_scale import graphical_lasso, graphical_lasso_path, sparsity_max


def kkt_residual(cov, penalty, precision):
    """Largest violation of the optimality conditions; ``penalty`` is Λ with its diagonal."""
    slack = torch.linalg.inv(precision) - cov
    on = (slack - penalty * precision.sign()).abs()
    off = (slack.abs() - penalty).clamp(min=0)
    return float(torch.where(precision != 0, on, off).max())


@pytest.mark.parametrize("sparsity", [0.3, 0.05, 0.01])
@pytest.mark.parametrize(("samples", "relu"), [(60, False), (5, True)])
def test_optimality_conditions_hold_to_rounding_on_request(sparsity, samples, relu):
    cov = sample_cov(12, samples, batch=(3,), relu=relu)
    result = graphical_lasso(cov, sparsity, tol=1e-12)
    for matrix, precision in zip(cov, result.precision, strict=True):
        assert kkt_residual(matrix, off_penalty(12, sparsity), precision) < 1e-8 * float(matrix.abs().max())
    assert bool((result.gap >= 0).all())
    assert bool((result.gap <= 12e-12).all())


@pytest.mark.parametrize("tol", [1e-3, 1e-5, 1e-7])
def test_gap_bounds_the_true_suboptimality(tol):
    cov = sample_cov(10, 40, batch=(4,))
    rough, exact = graphical_lasso(cov, 0.1, tol=tol), graphical_lasso(cov, 0.1, tol=1e-13)

    def objective(precision):
        penalty = 0.1 * (precision.abs() * off_diagonal(10)).sum((-2, -1))
        return (cov * precision).sum((-2, -1)) + penalty - torch.logdet(precision)

    error = objective(rough.precision) - objective(exact.precision)
    assert bool((error >= -1e-12).all())
    assert bool((error <= rough.gap + 1e-12).all())
    assert bool((rough.gap <= tol * 10).all())


@pytest.mark.parametrize("penalize_diagonal", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_agrees_with_the_reference(penalize_diagonal, weighted):
    cov = sample_cov(8, 60, seed=3)
    weights = torch.rand(8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    weights = weights + weights.T if weighted else None
    expected = graphical_lasso_reference(cov, 0.1, weights=weights, penalize_diagonal=penalize_diagonal)
    result = graphical_lasso(cov, 0.1, weights=weights, penalize_diagonal=penalize_diagonal, tol=1e-12)
    torch.testing.assert_close(result.precision, expected, rtol=1e-6, atol=1e-7)
    assert torch.equal(result.precision != 0, expected != 0)


@pytest.mark.parametrize("sparsity", [0.02, 0.2])
def test_agrees_with_scikit_learn_at_tight_tolerance(sparsity):
    cov = sample_cov(15, 100, seed=5)
    _, expected = sklearn_graphical_lasso(cov.numpy(), sparsity, tol=1e-10, enet_tol=1e-12, max_iter=2000)
    precision = graphical_lasso(cov, sparsity, tol=1e-11).precision
    np.testing.assert_allclose(precision.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_no_penalty_gives_the_inverse():
    cov = sample_cov(6, 50, batch=(2,))
    result = graphical_lasso(cov, 0.0)
    torch.testing.assert_close(result.precision, torch.linalg.inv(cov))
    assert float(result.gap.max()) < 1e-10


def test_from_sparsity_max_on_the_precision_is_diagonal_and_just_below_it_is_not():
    cov = sample_cov(9, 30, batch=(3,))
    largest = sparsity_max(cov)
    above = graphical_lasso(cov, largest)
    torch.testing.assert_close(above.precision, torch.diag_embed(1 / cov.diagonal(dim1=-2, dim2=-1)))
    assert float(above.gap.max()) <= 1e-14
    below = graphical_lasso(cov, 0.98 * largest, tol=1e-9).precision
    assert bool(((below != 0) & off_diagonal(9)).flatten(1).any(1).all())


def test_two_variables_have_a_closed_form():
    cov = torch.tensor([[2.0, -0.9], [-0.9, 1.0]], dtype=torch.float64)
    expected = torch.linalg.inv(torch.tensor([[2.0, -0.6], [-0.6, 1.0]], dtype=torch.float64))
    torch.testing.assert_close(graphical_lasso(cov, 0.3, tol=1e-13).precision, expected)


def test_penalized_diagonal_equals_a_ridge_on_the_covariance():
    cov = sample_cov(10, 8)
    with_diagonal = graphical_lasso(cov, 0.1, penalize_diagonal=True, tol=1e-12).precision
    ridge = graphical_lasso(cov + 0.1 * torch.eye(10, dtype=cov.dtype), 0.1, tol=1e-12).precision
    torch.testing.assert_close(with_diagonal, ridge)


def test_permuting_the_variables_permutes_the_result():
    cov, order = sample_cov(12, 20), torch.randperm(12, generator=torch.Generator().manual_seed(2))
    plain = graphical_lasso(cov, 0.1, tol=1e-12).precision
    permuted = graphical_lasso(cov[order][:, order], 0.1, tol=1e-12).precision
    torch.testing.assert_close(permuted, plain[order][:, order], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("scale", ["correlation", "trace"])
def test_scales_are_units_of_the_penalty(scale):
    cov = sample_cov(7, 40)
    deviation = cov.diagonal().sqrt()
    unit = torch.outer(deviation, deviation) if scale == "correlation" else cov.trace().expand(7, 7)
    expected = graphical_lasso_reference(cov, 0.02, weights=unit)
    result = graphical_lasso(cov, 0.02, scale=scale, tol=1e-12)
    torch.testing.assert_close(result.precision, expected, rtol=1e-6, atol=1e-7)
    below_one = sparsity_max(cov, scale=scale)
    torch.testing.assert_close(below_one, (cov.abs() / unit)[off_diagonal(7)].max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_precision_and_covariance_are_mutual_inverses(dtype):
    cov = sample_cov(20, 10, batch=(2, 3), relu=True, dtype=dtype)
    result = graphical_lasso(cov, 0.05, scale="correlation")
    product = result.precision @ result.covariance
    bound = 1e-3 if dtype == torch.float32 else 1e-9
    assert float((product - torch.eye(20, dtype=dtype)).abs().max()) < bound
    assert result.precision.dtype == dtype
    assert result.gap.shape == result.n_iter.shape == (2, 3)
    assert torch.equal(result.precision, result.precision.mT)


def test_a_batch_gives_what_its_members_give():
    cov = torch.stack([sample_cov(10, n, seed=n) for n in (6, 12, 80)])
    sparsity = torch.tensor([0.3, 0.05, 0.01], dtype=torch.float64)
    batch = graphical_lasso(cov, sparsity)
    for place in range(3):
        alone = graphical_lasso(cov[place], sparsity[place])
        torch.testing.assert_close(batch.precision[place], alone.precision, rtol=1e-9, atol=1e-10)
        assert batch.n_iter[place] == alone.n_iter
    assert len(set(batch.n_iter.tolist())) > 1


def test_badly_scaled_variables_change_only_the_units():
    cov = sample_cov(8, 30)
    units = torch.logspace(-5, 5, 8, dtype=torch.float64)
    plain = graphical_lasso(cov, 0.1, scale="correlation", tol=1e-12)
    scaled = graphical_lasso(cov * torch.outer(units, units), 0.1, scale="correlation", tol=1e-12)
    torch.testing.assert_close(scaled.precision * torch.outer(units, units), plain.precision, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", ["rank one", "duplicates", "single variable"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_degenerate_matrices_are_solved(kind, dtype):
    if kind == "rank one":
        vector = torch.linspace(1, 2, 12, dtype=dtype)
        cov = torch.outer(vector, vector)
    elif kind == "duplicates":
        cov = sample_cov(6, 30, dtype=dtype).repeat(2, 2)
    else:
        cov = torch.tensor([[3.0]], dtype=dtype)
    result = graphical_lasso(cov, 0.05)
    assert float(result.gap) <= 1e-4 * cov.shape[-1]
    assert bool(torch.linalg.cholesky_ex(result.precision).info == 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rank_one_with_a_tiny_sparsity_is_solved(dtype):
    vector = torch.linspace(1, 2, 34, dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = graphical_lasso(torch.outer(vector, vector), 2e-4)
    assert float(result.gap) <= 1e-4 * 34


def test_warm_start_needs_fewer_iterations_and_ends_at_the_same_place():
    cov = sample_cov(20, 12, relu=True)
    cold = graphical_lasso(cov, 0.02, tol=1e-8)
    near = graphical_lasso(cov, 0.021, tol=1e-8)
    warm = graphical_lasso(cov, 0.02, tol=1e-8, init=near)
    assert int(warm.n_iter) < int(cold.n_iter)
    torch.testing.assert_close(warm.precision, cold.precision, rtol=1e-2, atol=1e-3)


def test_path_keeps_the_order_of_the_grid():
    cov = sample_cov(8, 20, batch=(2,))
    grid = [0.05, 0.4, 0.1]
    path = graphical_lasso_path(cov, grid, tol=1e-10)
    assert isinstance(path, GraphicalLassoResult)
    for place, sparsity in enumerate(grid):
        single = graphical_lasso(cov, sparsity, tol=1e-10).precision
        torch.testing.assert_close(path.precision[place], single, rtol=1e-5, atol=1e-6)


def test_running_short_warns_with_the_gap():
    cov = sample_cov(15, 5, seed=1)
    with pytest.warns(NotConvergedWarning, match=r"1 of 1 matrices did not converge in 2 iterations; .* gap is"):
        result = graphical_lasso(cov, 0.001, max_iter=2)
    assert float(result.gap) > 1e-4 * 15


def test_the_warning_says_where_float32_is_the_limit():
    with pytest.warns(NotConvergedWarning, match=r"in \d{1,3} iterations; .*; float32 does not represent") as caught:
        graphical_lasso(sample_cov(12, 5, seed=1).float(), 0.01, tol=1e-12)
    assert "max_iter" not in str(caught[0].message)


def test_unbounded_problems_are_reported_not_solved():
    cov = torch.ones(2, 2, dtype=torch.float64)
    weights = torch.eye(2, dtype=torch.float64)
    with pytest.warns(NotConvergedWarning, match="no positive definite dual point"):
        result = graphical_lasso(cov, 0.1, weights=weights, max_iter=20)
    assert math.isinf(float(result.gap))


@pytest.mark.parametrize(
    ("cov", "options", "message"),
    [
        (torch.ones(3, 4), {}, r"expected square matrices"),
        (torch.full((2, 2), math.nan), {}, "expected finite"),
        (torch.tensor([[1.0, 0.5], [0.1, 1.0]]), {}, "expected symmetric"),
        (torch.diag(torch.tensor([1.0, 0.0])), {}, "no minimum; drop constant variables"),
        (torch.ones(2, 2), {"sparsity": 0.0}, "use a sparsity above 0"),
        (torch.eye(2), {"sparsity": -1.0}, "expected sparsity ≥ 0"),
        (torch.eye(2), {"scale": "trase"}, "Did you mean 'trace'"),
        (torch.eye(2), {"tol": 0.0}, "expected a finite tol > 0"),
        (torch.eye(2), {"weights": torch.ones(3, 3)}, "expected weights"),
        (torch.eye(2), {"weights": torch.full((2, 2), math.inf)}, r"got inf to inf; .* 1e6 forbids an entry"),
        (torch.eye(2), {"sparsity": torch.full((2, 2), 0.1)}, "pass a penalty per entry as weights="),
        (torch.tensor([[1.0, 1e-4, 0], [0, 1e-6, 0], [0, 0, 1]]), {}, "between variables 0 and 1"),
        (
            torch.diag(torch.tensor([1.0, 0.0])),
            {"scale": "correlation", "penalize_diagonal": True},
            "no minimum; drop constant variables, with scale='raw'",
        ),
        (torch.eye(2), {"init": torch.eye(3)}, "expected init of size 2"),
        (
            torch.eye(2).expand(4, 2, 2),
            {"sparsity": torch.ones(3)},
            r"got shapes that do not broadcast: sparsity \(3,\)",
        ),
    ],
)
def test_input_that_cannot_be_solved_is_refused_with_a_reason(cov, options, message):
    with pytest.raises(ValueError, match=message):
        graphical_lasso(cov, **{"sparsity": 0.1, **options})


@settings(max_examples=40, deadline=None)
@given(
    size=st.integers(1, 12),
    samples=st.integers(2, 30),
    sparsity=st.floats(0.01, 1.5),
    seed=st.integers(0, 10_000),
    relu=st.booleans(),
    magnitude=st.floats(-4, 4),
)
def test_random_matrices_are_certified_and_optimal(size, samples, sparsity, seed, relu, magnitude):
    cov = sample_cov(size, samples, seed=seed, relu=relu) + 1e-3 * torch.eye(size, dtype=torch.float64)
    cov = cov * 10**magnitude
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = graphical_lasso(cov, sparsity, scale="correlation", tol=1e-11)
    deviation = cov.diagonal().sqrt()
    unit = torch.outer(deviation, deviation)
    assert 0 <= float(result.gap) <= 1e-11 * size
    assert kkt_residual(cov / unit, off_penalty(size, sparsity), result.precision * unit) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [32, 128, 256])
def test_every_kind_of_matrix_is_certified(size, dtype):
    cov = torch.cat([make(size, 3, seed=1) for make in KINDS.values()]).to(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for sparsity in (0.3, 0.1, 0.03, 0.01):
            for tol in (1e-4, 1e-7):
                result = graphical_lasso(cov, sparsity, tol=tol)
                assert bool((result.gap <= tol * size).all()), (sparsity, tol)


def recheck(cov, penalty, result, *, penalize_diagonal=False):
    """Return the gap by the documented formula, and by how much the dual leaves its box."""
    theta, dual = result.precision.double().numpy(), result.dual.numpy()
    cov = cov.double().numpy()
    penalty = penalty * np.ones_like(cov) * (1 if penalize_diagonal else 1 - np.eye(len(cov)))
    primal = -np.linalg.slogdet(theta)[1] + (cov * theta).sum() + (penalty * np.abs(theta)).sum()
    return primal - np.linalg.slogdet(dual)[1] - len(cov), (np.abs(dual - cov) - penalty).max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("penalize_diagonal", [False, True])
@pytest.mark.parametrize(("kind", "sparsity"), [("few samples", 1e-4), ("rank one", 1e-4), ("blocks", 0.3)])
def test_anybody_can_recheck_the_gap_from_the_dual_point(kind, sparsity, penalize_diagonal, dtype):
    vector = torch.linspace(1, 2, 10, dtype=torch.float64)
    cov = {
        "few samples": lambda: sample_cov(20, 6),
        "rank one": lambda: torch.outer(vector, vector),
        "blocks": lambda: sample_cov(40, 60),
    }[kind]().to(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        result = graphical_lasso(cov, sparsity, penalize_diagonal=penalize_diagonal)
    gap, outside = recheck(cov, sparsity, result, penalize_diagonal=penalize_diagonal)
    assert outside <= 1e-15 * float(cov.abs().max())
    assert result.dual.dtype == result.gap.dtype == torch.float64
    assert float(result.gap) == pytest.approx(gap, rel=1e-6, abs=1e-9)


def test_the_certificate_in_float32_includes_the_units():
    cov = (sample_cov(30, 40) * torch.outer(*2 * [torch.logspace(-3, 3, 30, dtype=torch.float64)])).float()
    result = graphical_lasso(cov, 0.05, scale="correlation")
    deviation = cov.double().diagonal().sqrt()
    gap, _ = recheck(cov, 0.05 * torch.outer(deviation, deviation).numpy(), result)
    assert float(result.gap) == pytest.approx(gap, rel=1e-6, abs=1e-9)
    assert float(result.gap) <= 30e-4


@pytest.mark.parametrize("size", [10, 40])  # a batch, and the path of one matrix on a CPU
def test_the_certificate_of_a_path_is_for_the_numbers_given(size):
    cov, grid = sample_cov(size, 60), [0.3, 0.2, 0.1]
    path = graphical_lasso_path(cov, grid)
    for place, sparsity in enumerate(grid):
        result = type(path)(*(tensor[place] for tensor in path))
        gap, outside = recheck(cov, sparsity, result)
        assert outside <= 1e-15 * float(cov.abs().max())
        assert float(result.gap) == pytest.approx(gap, rel=1e-6, abs=1e-12)


def test_one_sparsity_per_matrix_may_have_the_shape_of_a_matrix_if_the_batch_has():
    cov = torch.eye(2).expand(2, 2, 2, 2)
    assert graphical_lasso(cov, torch.full((2, 2), 0.1)).precision.shape == (2, 2, 2, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [6, 20, 80])
@pytest.mark.parametrize("weight", [1e6, 1e30, 1e200])
def test_a_large_weight_forbids_an_entry(size, weight, dtype):
    cov = sample_cov(size, 3 * size)
    place = torch.arange(size)
    allowed = (place[:, None] - place).abs() <= 1
    weights = torch.full_like(cov, weight).masked_fill_(allowed, 1.0)
    found = graphical_lasso(cov.to(dtype), 0.1, weights=weights, tol=1e-5)
    exact = graphical_lasso(cov, 0.1, weights=weights.clamp(max=50), tol=1e-9)
    assert float(found.gap) <= 1e-5 * size
    assert bool((found.precision[~allowed] == 0).all())
    torch.testing.assert_close(found.precision.double(), exact.precision, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("sparsity", [None, "0.1", [None], 1j])
def test_a_sparsity_that_is_no_number_is_refused(sparsity):
    with pytest.raises(TypeError, match="graphical_lasso: expected sparsity as a number or a tensor, got"):
        graphical_lasso(torch.eye(2), sparsity)
    with pytest.raises(TypeError, match="expected sparsities as a number or a tensor, got"):
        graphical_lasso_path(torch.eye(2), [sparsity])


def test_asymmetric_weights_are_refused():
    with pytest.raises(ValueError, match=r"expected symmetric weights, got 1 and 0 for variables 0 and 1"):
        graphical_lasso(sample_cov(5, 20), 0.1, weights=torch.triu(torch.ones(5, 5)))


def test_weights_may_be_a_mask_or_of_an_empty_batch():
    cov = sample_cov(5, 20)
    mask = torch.ones(5, 5, dtype=torch.bool)
    torch.testing.assert_close(graphical_lasso(cov, 0.1, weights=mask), graphical_lasso(cov, 0.1))
    assert graphical_lasso(cov[:0].reshape(0, 5, 5), 0.1, weights=torch.ones(0, 5, 5)).precision.shape == (0, 5, 5)


def test_an_infinite_weight_forbids_an_entry_where_input_is_not_checked():
    cov, weights = sample_cov(5, 20), torch.ones(5, 5, dtype=torch.float64)
    weights[0, 1] = weights[1, 0] = math.inf
    found = graphical_lasso(cov, 0.1, weights=weights, check_input=False)
    assert found.precision[0, 1] == 0
    assert float(found.gap) <= 5e-4
