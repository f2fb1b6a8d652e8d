"""After the fit: refit, threshold, concave penalties, debiasing, bootstrap, networkx, plots."""

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import NotFittedError

from isice.estimator import SparsePrecision, SparsePrecisionCV
from isice.estimator.reweighting import mcp, scad

from .chain import chain_edges, chain_precision, chain_samples


def test_the_refit_is_the_maximum_likelihood_on_the_support():
    x = chain_samples(100)
    penalized = SparsePrecision(0.2).fit(x)
    refitted = SparsePrecision(0.2, refit="support", tol=1e-11).fit(x)
    support = penalized.precision_ != 0
    np.testing.assert_array_equal(refitted.precision_ != 0, support)
    # Dempster's equations: the covariance agrees with the sample's on the support.
    cov = np.cov(x.T, bias=True)
    np.testing.assert_allclose(np.linalg.inv(refitted.precision_)[support], cov[support], atol=1e-4)
    assert refitted.score(x) > penalized.score(x)
    assert 0 <= refitted.dual_gap_ <= 8e-11


def test_the_refit_of_collinear_data_converges():
    x = load_breast_cancer().data[:, :12]
    model = SparsePrecision(0.1, threshold=0.05, refit="support", tol=1e-9).fit(x)
    support = model.precision_ != 0
    correlation = np.corrcoef(x.T)
    unit = np.outer(x.std(axis=0), x.std(axis=0))
    np.testing.assert_allclose((model.covariance_ / unit)[support], correlation[support], atol=1e-4)
    assert model.dual_gap_ <= 12e-9


def test_the_complete_graph_gives_the_inverse():
    x = chain_samples(100)
    model = SparsePrecision(1e-4, refit="support", tol=1e-12).fit(x)
    assert np.all(model.precision_ != 0)
    np.testing.assert_allclose(model.precision_, np.linalg.inv(np.cov(x.T, bias=True)), rtol=1e-6)


def test_the_threshold_removes_weak_edges():
    x = chain_samples(60)
    plain, cut = SparsePrecision(0.05).fit(x), SparsePrecision(0.05, threshold=0.2).fit(x)
    strong = np.abs(plain.partial_correlation_) > 0.2
    np.testing.assert_array_equal(cut.precision_ != 0, strong & (plain.precision_ != 0))
    np.testing.assert_allclose(cut.covariance_, np.linalg.inv(cut.precision_))
    both = SparsePrecision(0.05, threshold=0.2, refit="support").fit(x)
    np.testing.assert_array_equal(both.precision_ != 0, cut.precision_ != 0)
    none = SparsePrecision(0.05, threshold=1.0).fit(x)
    np.testing.assert_allclose(none.precision_, np.diag(np.diag(plain.precision_)))


def test_a_support_without_maximum_likelihood_is_refused():
    x = chain_samples(4)
    with pytest.raises(ValueError, match="too dense for the samples"):
        SparsePrecision(0.01, refit="support").fit(x)


def test_concave_penalties_have_the_derivatives_of_their_definitions():
    t, lam, h = torch.linspace(0.01, 1.0, 50, dtype=torch.float64), torch.tensor(0.2), 1e-6

    def scad_value(x, a=3.7):
        middle = (2 * a * lam * x - x**2 - lam**2) / (2 * (a - 1))
        return torch.where(x <= lam, lam * x, torch.where(x <= a * lam, middle, lam**2 * (a + 1) / 2))

    def mcp_value(x, gamma=3.0):
        return torch.where(x <= gamma * lam, lam * x - x**2 / (2 * gamma), 0.5 * gamma * lam**2)

    for value, derivative in ((scad_value, scad), (mcp_value, mcp)):
        difference = (value(t + h) - value(t - h)) / (2 * h) / lam
        torch.testing.assert_close(derivative(t, lam), difference, rtol=0, atol=1e-4)


@pytest.mark.parametrize("reweight", ["adaptive", "scad", "mcp"])
def test_concave_penalties_bias_the_edges_less(reweight):
    x, truth, options = chain_samples(1000), chain_precision(), {"selection": "ebic", "sparsities": 15}
    lasso = SparsePrecisionCV(**options).fit(x)
    concave = SparsePrecisionCV(reweight=reweight, **options).fit(x)
    edges = chain_edges() & np.triu(np.ones((8, 8), bool))
    errors = [np.abs(model.precision_ - truth)[edges].mean() for model in (lasso, concave)]
    assert errors[1] < 0.8 * errors[0]
    assert (concave.precision_[edges] != 0).all()
    assert np.count_nonzero(concave.precision_) <= np.count_nonzero(lasso.precision_)


@pytest.mark.parametrize(
    ("reweight", "weight"),
    [
        ("adaptive", lambda t: np.maximum(t, 1e-4) ** -0.5),
        ("scad", lambda t: np.where(t <= 0.1, 1.0, np.maximum(0.37 - t, 0) / 0.27)),
        ("mcp", lambda t: np.maximum(1 - t / 0.3, 0)),
    ],
)
def test_reweighting_is_three_solves_with_the_weights_of_the_solution_before(reweight, weight):
    x = chain_samples(100)
    model, unit = SparsePrecision(0.1, tol=1e-12).fit(x), np.outer(x.std(axis=0), x.std(axis=0))
    for _ in range(3):
        weights = np.maximum(weight(np.abs(model.precision_ * unit)), 0.01)
        model = SparsePrecision(0.1, weights=weights, tol=1e-12).fit(x)
    found = SparsePrecision(0.1, reweight=reweight, tol=1e-12).fit(x).precision_
    np.testing.assert_allclose(found, model.precision_, rtol=1e-5, atol=1e-8)


def test_reweighting_keeps_the_given_weights():
    """An entry without penalty has the covariance of the samples."""
    x, weights = chain_samples(60), np.ones((8, 8))
    weights[0, 5] = weights[5, 0] = 0.0
    model = SparsePrecision(0.2, reweight="scad", weights=weights, scale="raw", tol=1e-10).fit(x)
    assert model.covariance_[0, 5] == pytest.approx(model.sample_covariance_[0, 5], abs=1e-5)
    assert model.precision_[0, 5] != 0
    assert SparsePrecision(0.2, reweight="scad", scale="raw").fit(x).precision_[0, 5] == 0


@pytest.mark.parametrize("reweight", ["adaptive", "scad", "mcp"])
def test_reweighting_of_few_samples_has_a_solution(reweight, recwarn):
    x = np.random.default_rng(0).normal(size=(20, 40))
    x[:, 1] += 2 * x[:, 0]
    assert SparsePrecision(0.01, reweight=reweight).fit(x).dual_gap_ <= 40e-6
    assert not recwarn.list


def test_debiasing_follows_its_formula():
    x = chain_samples(200)
    model = SparsePrecision(0.1).fit(x)
    result = model.debiased(fdr=0.1)
    theta, cov = model.precision_, np.cov(x.T, bias=True)
    np.testing.assert_allclose(result.precision, theta + theta.T - theta.T @ cov @ theta)
    assert result.standard_error[1, 3] == pytest.approx(np.sqrt((theta[1, 1] * theta[3, 3] + theta[1, 3] ** 2) / 200))
    rows, columns = np.triu_indices(8, 1)
    p, q = result.p_values[rows, columns], result.q_values[rows, columns]
    np.testing.assert_allclose(p, 2 * norm.sf(np.abs(result.precision / result.standard_error))[rows, columns])
    ordered = np.sort(p)
    by_hand = [min(ordered[j] * 28 / (j + 1) for j in range(k, 28)) for k in range(28)]
    np.testing.assert_allclose(q[np.argsort(p)], np.minimum(by_hand, 1.0))
    # Benjamini and Hochberg: reject the k smallest, k the largest with p_(k) ≤ k·α/m.
    passed = np.flatnonzero(np.sort(p) <= 0.1 * np.arange(1, 29) / 28)
    np.testing.assert_array_equal(q <= 0.1, p <= np.sort(p)[passed[-1]])
    np.testing.assert_array_equal(result.edges, result.edges.T)
    assert not result.edges.diagonal().any()
    assert result.edges[chain_edges()].sum() == 14


def test_debiasing_a_precomputed_matrix_needs_the_number_of_samples():
    x = chain_samples(50)
    model = SparsePrecision(covariance="precomputed").fit(np.cov(x.T, bias=True))
    with pytest.raises(ValueError, match="pass n_samples="):
        model.debiased()
    expected = SparsePrecision().fit(x).debiased()
    np.testing.assert_allclose(model.debiased(n_samples=50).p_values, expected.p_values, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "edges_from", "edges_to"), [(1.0, 0.86, 0.90), (0.5, 0.92, 0.96)])
def test_coverage_of_debiased_intervals_and_false_discovery_rate(factor, edges_from, edges_to):
    """The figures of docs/statistics.md: nominal 95 %, apart for edges and for zeros."""
    size, n, on_edges, on_zeros, false = 20, 400, [], [], []
    truth, edges = chain_precision(size), chain_edges(size)
    zeros = ~edges & ~np.eye(size, dtype=bool)
    samples = [chain_samples(n, size, seed) for seed in range(200)]
    for model in SparsePrecision(factor * np.sqrt(np.log(size) / n)).fit_batch(samples):
        result = model.debiased(fdr=0.1)
        covered = np.abs(result.precision - truth) <= 1.96 * result.standard_error
        on_edges.append(covered[edges].mean())
        on_zeros.append(covered[zeros].mean())
        false.append((result.edges & ~edges).sum() / max(1, result.edges.sum()))
    assert edges_from < np.mean(on_edges) < edges_to
    assert 0.95 < np.mean(on_zeros) < 0.99
    assert np.mean(false) < 0.1


def test_p_values_need_complete_samples_or_their_number():
    x = chain_samples(400)
    x[::3, 0] = np.nan
    model = SparsePrecision(0.1, missing="pairwise").fit(x)
    with pytest.raises(ValueError, match="expected complete samples for p-values, got missing values"):
        model.debiased()
    complete = SparsePrecision(0.1).fit(chain_samples(400))
    assert (model.debiased(n_samples=266).standard_error > complete.debiased().standard_error).mean() > 0.9


@pytest.mark.parametrize("call", [lambda m, x: m.debiased(fdr=5), lambda m, x: m.edge_stability(x, confidence=95)])
def test_shares_are_not_percentages(call):
    x = chain_samples(100)
    with pytest.raises(ValueError, match=r"between 0 and 1, got (5|95); 5 % is 0\.05"):
        call(SparsePrecision(0.2).fit(x), x)


@pytest.mark.parametrize("options", [{"refit": "support"}, {"threshold": 0.1}])
def test_stability_is_that_of_the_penalized_estimate(options):
    x = chain_samples(200)
    with pytest.raises(ValueError, match="expected the penalized estimate for edge_stability, got refit="):
        SparsePrecision(0.2, **options).fit(x).edge_stability(x)


def test_edges_of_the_chain_are_stable_and_the_intervals_cover_the_fit():
    x = chain_samples(400)
    model = SparsePrecisionCV(selection="ebic", sparsities=10, n_refinements=0).fit(x)
    stability = model.edge_stability(x, n_bootstraps=40, confidence=0.9, random_state=1)
    assert (stability.frequency[chain_edges()] == 1).all()
    others = ~chain_edges() & ~np.eye(8, dtype=bool)
    assert stability.frequency[others].mean() < 0.7
    assert (stability.low <= stability.high).all()
    strong = model.partial_correlation_[chain_edges()]
    assert np.mean((stability.low[chain_edges()] <= strong) & (strong <= stability.high[chain_edges()])) > 0.8
    again = model.edge_stability(x, n_bootstraps=40, confidence=0.9, random_state=1)
    np.testing.assert_array_equal(stability.frequency, again.frequency)
    # By hand.
    rng = np.random.RandomState(1)
    alone = SparsePrecision(model.sparsity_).fit_batch([x[rng.randint(400, size=400)] for _ in range(40)])
    found = np.stack([one.partial_correlation_ for one in alone])
    np.testing.assert_allclose(stability.frequency, (found != 0).mean(axis=0), atol=0.03)
    np.testing.assert_allclose(stability.low, np.quantile(found, 0.05, axis=0), atol=1e-3)
    np.testing.assert_allclose(stability.high, np.quantile(found, 0.95, axis=0), atol=1e-3)


def test_the_networkx_graph_has_names_and_no_self_loops():
    networkx = pytest.importorskip("networkx")
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    x = pandas.DataFrame(chain_samples(2000), columns=list("abcdefgh"))
    graph = SparsePrecision(0.3).fit(x).to_networkx()
    assert sorted(graph.edges) == [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "f"), ("f", "g"), ("g", "h")]
    assert networkx.number_of_selfloops(graph) == 0


def test_the_networkx_graph_is_the_precision():
    networkx = pytest.importorskip("networkx")
    model = SparsePrecision(0.2).fit(chain_samples(100))
    graph = model.to_networkx()
    matrix = networkx.to_numpy_array(graph, weight="precision")
    np.testing.assert_allclose(matrix + np.diag(np.diag(model.precision_)), model.precision_)
    np.testing.assert_allclose(networkx.to_numpy_array(graph) + np.eye(8), model.partial_correlation_)
    model.feature_names_in_ = np.array(list("abcdefgh"), dtype=object)
    assert list(model.to_networkx().nodes) == list("abcdefgh")
    with pytest.raises(NotFittedError):
        SparsePrecision().to_networkx()


def test_the_plots_are_reachable_from_the_estimator():
    import matplotlib as mpl

    mpl.use("Agg")
    model = SparsePrecisionCV(selection="ebic", sparsities=5).fit(chain_samples(100))
    ax = model.plot_graph(title="chain")
    assert ax.get_title() == "chain"
    assert [text.get_text() for text in ax.texts] == [str(i) for i in range(8)]
    assert model.plot_path().get_xlabel() == "sparsity λ"
    assert model.plot_selection().get_ylabel() == "EBIC"


def test_edge_stability_resamples_weights_with_their_samples():
    x = np.random.default_rng(0).normal(size=(200, 3))
    x[:, 1] += np.where(np.arange(200) < 100, -1.0, 1.0) * x[:, 0]
    weight = np.r_[np.full(100, 0.01), np.ones(100)]
    model = SparsePrecision(0.1).fit(x, sample_weight=weight)
    stability = model.edge_stability(x, weight, n_bootstraps=10)
    assert stability.frequency[0, 1] == 1
    assert stability.low[0, 1] < model.partial_correlation_[0, 1] < stability.high[0, 1]
    with pytest.raises(ValueError, match="expected the samples of the fit with their sample_weight"):
        model.edge_stability(x, n_bootstraps=2)


def test_edge_stability_resamples_samples_of_positive_weight_only():
    x, weight = chain_samples(60, 3), np.r_[np.ones(6), np.zeros(54)]
    model = SparsePrecision(0.1).fit(x, sample_weight=weight)
    found = model.edge_stability(x, weight, n_bootstraps=100)
    np.testing.assert_array_equal(found.low, SparsePrecision(0.1).fit(x[:6]).edge_stability(x[:6]).low)


def test_edge_stability_needs_the_samples_of_the_fit():
    x = chain_samples(50, 4)
    with pytest.raises(ValueError, match="features"):
        SparsePrecision(0.1).fit(x).edge_stability(x[:, :3])
    with pytest.raises(ValueError, match="expected a fit to samples, got one to a precomputed covariance"):
        SparsePrecision(0.1, covariance="precomputed").fit(np.cov(x.T)).edge_stability(x)


def test_p_values_of_another_estimate_are_warned_of():
    for options, name in (
        ({"refit": "support"}, "refit"),
        ({"weights": np.full((4, 4), 2.0)}, "weights"),
        ({"penalize_diagonal": True}, "penalize_diagonal"),
        ({"covariance_estimator": "spearman"}, "covariance_estimator='spearman'"),
    ):
        with pytest.warns(UserWarning, match=f"for valid p-values, got {name}; fit without"):
            SparsePrecision(0.1, **options).fit(chain_samples(100, 4)).debiased()
    with pytest.raises(ValueError, match="n_samples"):
        SparsePrecision(0.1).fit(chain_samples(100, 4)).debiased(n_samples=0)
    SparsePrecision(0.1).fit(chain_samples(100, 4)).debiased(n_samples=np.int64(60))
