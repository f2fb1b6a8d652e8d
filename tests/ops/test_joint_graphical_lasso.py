"""Joint graphical lasso: optimality conditions, limiting cases, another solver, certificates."""

from functools import partial

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

import isice.functional as F
from isice.ops.graphical_lasso import NotConvergedWarning
from isice.ops.graphical_lasso.fused import fuse_neighbours, fuse_pairs

joint_graphical_lasso = partial(F.joint_graphical_lasso, scale="raw")


def class_covariances(classes=3, size=8, samples=40, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.eye(size) + 0.3 * torch.randn(size, size, generator=generator)
    own = mixing + 0.1 * torch.randn(classes, size, size, generator=generator)
    x = own @ torch.randn(classes, size, samples, generator=generator)
    x = x - x.mean(-1, keepdim=True)
    return (x @ x.mT / samples).to(dtype)


def penalty_value(precision, sparsity, similarity, penalty):
    """The penalty of one problem (K, D, D), written out."""
    classes, size = len(precision), precision.shape[-1]
    total = 0.0
    for i in range(size):
        for j in range(size):
            if i != j:
                entries = precision[:, i, j]
                pairs = [abs(entries[k] - entries[m]) for k in range(classes) for m in range(k)]
                steps = np.abs(np.diff(entries)).sum()
                shared = {"fused": sum(pairs), "time_varying": steps, "group": np.sqrt((entries**2).sum())}[penalty]
                total += sparsity * np.abs(entries).sum() + similarity * shared
    return total


def violation_group(subgradient, entries, sparsity, similarity):
    """Distance from zero of V − λ₁ sign(x) − λ₂ x/‖x‖, with the best subgradients at zero."""
    if not entries.any():
        rest = np.sign(subgradient) * np.maximum(np.abs(subgradient) - sparsity, 0)
        return max(0.0, np.linalg.norm(rest) - similarity)
    rest = subgradient - similarity * entries / np.linalg.norm(entries)
    return np.where(
        entries != 0, np.abs(rest - sparsity * np.sign(entries)), np.maximum(np.abs(rest) - sparsity, 0)
    ).max()


def violation_fused(subgradient, entries, sparsity, similarity, reach=3):
    """Smallest error of V = λ₁a + λ₂Σ(±u) over the subgradients a, u: a linear program."""
    classes = len(entries)
    pairs = [(k, m) for k in range(classes) for m in range(k + 1, min(k + 1 + reach, classes))]
    edges = np.zeros((classes, len(pairs)))
    for column, (k, m) in enumerate(pairs):
        edges[k, column], edges[m, column] = 1, -1
    matrix = np.hstack([sparsity * np.eye(classes), similarity * edges])
    arguments = np.concatenate([entries, [entries[k] - entries[m] for k, m in pairs]])
    bounds = [(-1, 1) if a == 0 else (np.sign(a), np.sign(a)) for a in arguments]
    slack = -np.ones((classes, 1))
    result = linprog(
        np.append(np.zeros(len(arguments)), 1.0),
        A_ub=np.vstack([np.hstack([matrix, slack]), np.hstack([-matrix, slack])]),
        b_ub=np.concatenate([subgradient, -subgradient]),
        bounds=[*bounds, (0, None)],
    )
    return result.fun


@pytest.mark.parametrize("penalty", ["group", "fused", "time_varying"])
@pytest.mark.parametrize("samples", [40, 5])
def test_optimality_conditions_hold(penalty, samples):
    cov, n = class_covariances(samples=samples), torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    precision = joint_graphical_lasso(cov, 0.08, 0.05, penalty=penalty, class_weights=n, tol=1e-15).precision
    subgradient = (n[:, None, None] * (torch.linalg.inv(precision) - cov)).numpy()
    theta = precision.numpy()
    check = violation_group if penalty == "group" else partial(violation_fused, reach=3 if penalty == "fused" else 1)
    worst = max(check(subgradient[:, i, j], theta[:, i, j], 0.08, 0.05) for i in range(8) for j in range(i))
    assert worst < 2e-6
    np.testing.assert_allclose(np.diagonal(subgradient, axis1=1, axis2=2), 0, atol=2e-6)
    off = np.triu(np.ones((8, 8), bool), 1)
    assert 0 < np.count_nonzero(theta[:, off]) < 3 * off.sum()


@pytest.mark.parametrize("penalty", ["group", "fused", "time_varying"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gap_follows_from_the_matrices_returned_and_bounds_the_error(penalty, dtype):
    cov = class_covariances(dtype=dtype)
    rough = joint_graphical_lasso(cov, 0.1, 0.05, penalty=penalty, tol=1e-3)
    exact = joint_graphical_lasso(cov.double(), 0.1, 0.05, penalty=penalty, tol=1e-13)

    def objective(precision):
        precision = precision.double()
        fit = (cov.double() * precision).sum() - torch.logdet(precision).sum()
        return float(fit) + penalty_value(precision.numpy(), 0.1, 0.05, penalty)

    from_dual = objective(rough.precision) - float(torch.logdet(rough.dual.double()).sum()) - 3 * 8
    assert float(rough.gap) == pytest.approx(from_dual, abs=1e-4 if dtype == torch.float32 else 1e-10)
    assert -1e-10 <= objective(rough.precision) - objective(exact.precision) <= float(rough.gap) + 1e-6
    assert float(rough.gap) <= 1e-3 * 24 * 1.01
    assert rough.precision.dtype == dtype


@pytest.mark.parametrize("name", ["sparsity", "similarity"])
def test_a_penalty_per_entry_is_refused_and_weights_are_named(name):
    penalties = {"sparsity": 0.1, "similarity": 0.1} | {name: torch.full((8, 8), 0.1)}
    with pytest.raises(ValueError, match=f"{name} with one value per problem.*weights="):
        F.joint_graphical_lasso(class_covariances(), **penalties)
    with pytest.raises(ValueError, match="one value per problem"):
        F.latent_graphical_lasso(class_covariances()[0], torch.full((8, 8), 0.1), 0.1)


def test_without_similarity_the_classes_are_separate_graphical_lassos():
    cov = class_covariances()
    expected = F.graphical_lasso(cov, 0.1, scale="raw", tol=1e-12).precision
    for penalty in ("group", "fused", "time_varying"):
        result = joint_graphical_lasso(cov, 0.1, 0.0, penalty=penalty, tol=1e-13)
        torch.testing.assert_close(result.precision, expected, rtol=1e-5, atol=1e-6)
        assert torch.equal(result.precision != 0, expected != 0)


def test_a_large_fused_penalty_pools_the_off_diagonals_of_equal_diagonals():
    cov = class_covariances(classes=2)
    deviation = cov.diagonal(dim1=-2, dim2=-1).sqrt()
    cov = cov / deviation.unsqueeze(-1) / deviation.unsqueeze(-2)
    cov[1] = cov[0] + 0.02 * torch.eye(8).roll(1, 0).add(torch.eye(8).roll(1, 1)).double()
    result = joint_graphical_lasso(cov, 0.1, 5.0, penalty="fused", tol=1e-13).precision
    off = ~torch.eye(8, dtype=torch.bool)
    assert torch.equal(result[0][off], result[1][off])


def test_weights_multiply_both_penalties():
    cov, weights = class_covariances(), torch.full((8, 8), 2.0, dtype=torch.float64)
    doubled = joint_graphical_lasso(cov, 0.1, 0.05, weights=weights, tol=1e-10).precision
    torch.testing.assert_close(doubled, joint_graphical_lasso(cov, 0.2, 0.1, tol=1e-10).precision)
    weights[0, 1] = weights[1, 0] = 1e3
    assert not joint_graphical_lasso(cov, 0.01, 0.0, weights=weights).precision[:, 0, 1].any()


def test_the_group_penalty_shares_the_support():
    precision = joint_graphical_lasso(class_covariances(), 0.0, 0.2, tol=1e-10).precision
    assert torch.equal((precision != 0).any(0), (precision != 0).all(0))
    assert bool((precision == 0).any())


@pytest.mark.parametrize("fuse", [fuse_pairs, fuse_neighbours])
def test_fusing_meets_the_optimality_conditions(fuse):
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(2, 6, 5, 4, generator=generator, dtype=torch.float64)
    y[0, 3] = y[0, 2]  # a tie
    penalty = torch.rand(2, 1, 5, 4, generator=generator, dtype=torch.float64) * torch.tensor([0.0, 0.3, 1, 5]).double()
    x = fuse(y, penalty)
    for index in np.ndindex(2, 5, 4):
        entries, gradient = (t[index[0], :, index[1], index[2]].numpy() for t in (x, y - x))
        lam = float(penalty[index[0], 0, index[1], index[2]])
        assert violation_fused(gradient, entries, 0.0, lam, reach=6 if fuse is fuse_pairs else 1) < 1e-9
    torch.testing.assert_close(x[..., 0], y[..., 0])
    assert len(x[0, :, 0, 3].unique()) < 6


def test_batch_on_the_correlation_scale_equals_single_problems():
    cov = torch.stack([class_covariances(seed=s) for s in (1, 2)])
    sparsity = torch.tensor([0.3, 0.02], dtype=torch.float64)
    units = torch.logspace(-2, 2, 8, dtype=torch.float64)
    scaled = cov * torch.outer(units, units)
    batch = joint_graphical_lasso(scaled, sparsity, 0.05, scale="correlation", tol=1e-10)
    deviation = cov.diagonal(dim1=-2, dim2=-1).sqrt()
    unit = deviation.unsqueeze(-1) * deviation.unsqueeze(-2)
    assert batch.gap.shape == batch.n_iter.shape == (2,)
    for index in range(2):
        alone = joint_graphical_lasso(cov[index] / unit[index], sparsity[index], 0.05, tol=1e-10)
        expected = alone.precision / unit[index] / torch.outer(units, units)
        torch.testing.assert_close(batch.precision[index], expected, rtol=1e-6, atol=0)


def test_a_warm_start_needs_fewer_iterations():
    cov = class_covariances(size=20, samples=15)
    near = joint_graphical_lasso(cov, 0.052, 0.05, tol=1e-8)
    cold = joint_graphical_lasso(cov, 0.05, 0.05, tol=1e-8)
    warm = joint_graphical_lasso(cov, 0.05, 0.05, tol=1e-8, init=near)
    assert int(warm.n_iter) < int(cold.n_iter)
    torch.testing.assert_close(warm.precision, cold.precision, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(
    ("penalty", "name", "classes"), [("group", "GGL", 3), ("fused", "FGL", 2), ("time_varying", "FGL", 4)]
)
def test_agrees_with_gglasso(penalty, name, classes):
    solver = pytest.importorskip("gglasso.solver.admm_solver", reason="gglasso is not installed")
    cov = class_covariances(classes, size=50, samples=120)
    start = np.stack([np.eye(50)] * classes)
    expected, _ = solver.ADMM_MGL(cov.numpy(), 0.1, 0.05, name, start, tol=1e-10, rtol=1e-10, max_iter=5000)
    result = joint_graphical_lasso(cov, 0.1, 0.05, penalty=penalty, tol=1e-14)
    np.testing.assert_allclose(result.precision.numpy(), expected["Theta"], atol=1e-5)


def test_running_short_warns_with_the_gap():
    with pytest.warns(NotConvergedWarning, match=r"joint_graphical_lasso: 1 of 1 problems .* largest duality gap"):
        joint_graphical_lasso(class_covariances(samples=4), 0.001, 0.001, max_iter=2)
    with pytest.warns(NotConvergedWarning, match="raise the penalties if cov is singular"):
        joint_graphical_lasso(torch.ones(2, 3, 3), 0.0, 0.0, max_iter=20)


def test_an_indefinite_matrix_has_an_infinite_gap():
    with pytest.warns(NotConvergedWarning, match="no positive definite dual point"):
        result = joint_graphical_lasso(torch.tensor([[[1.0, 2.0], [2.0, 1.0]]]), 0.1, 0.1, max_iter=200)
    assert torch.isinf(result.gap)


def test_a_batch_may_be_empty():
    result = joint_graphical_lasso(torch.ones(0, 2, 3, 3), 0.1, 0.1)
    assert result.precision.shape == result.covariance.shape == result.dual.shape == (0, 2, 3, 3)
    assert result.gap.shape == result.n_iter.shape == (0,)


@pytest.mark.parametrize(
    ("cov", "options", "message"),
    [
        (torch.eye(3), {}, r"one matrix per class"),
        (torch.ones(0, 3, 3), {}, r"one matrix per class"),
        (
            torch.eye(3).expand(4, 2, 3, 3),
            {"sparsity": torch.ones(3)},
            r"one per problem, \(4,\) for cov \(4, 2, 3, 3\), .* not broadcast: sparsity \(3,\)",
        ),
        (torch.eye(3).expand(2, 3, 3), {"sparsity": -1.0}, "finite sparsity ≥ 0"),
        (torch.eye(3).expand(2, 3, 3), {"similarity": -1.0}, "finite similarity ≥ 0"),
        (torch.eye(3).expand(2, 3, 3), {"penalty": "fusd"}, "Did you mean 'fused'"),
        (torch.eye(3).expand(2, 3, 3), {"class_weights": torch.ones(3)}, "expected 2 class_weights"),
        (torch.eye(3).expand(2, 3, 3), {"weights": -torch.ones(3, 3)}, "finite weights ≥ 0"),
        (torch.eye(3).expand(2, 3, 3), {"weights": torch.full((3, 3), torch.nan)}, "finite weights ≥ 0"),
        (torch.eye(3).expand(2, 3, 3), {"weights": torch.ones(3, 3).triu()}, "symmetric weights"),
        (torch.eye(3).expand(2, 3, 3), {"weights": torch.ones(2, 2)}, "with D = 3"),
        (torch.zeros(2, 3, 3), {}, "positive variance"),
        (torch.full((2, 3, 3), torch.nan), {}, "expected finite"),
        (torch.eye(3).expand(2, 3, 3).clone().requires_grad_(), {}, "not differentiable"),
    ],
)
def test_input_that_cannot_be_solved_is_refused(cov, options, message):
    arguments = {"sparsity": 0.1, "similarity": 0.1, **options}
    with pytest.raises(ValueError, match=message):
        joint_graphical_lasso(cov, **arguments)
