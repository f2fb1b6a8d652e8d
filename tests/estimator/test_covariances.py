"""Covariances from weights, ranks, missing values, scikit-learn estimators; selection with them."""

import numpy as np
import pytest
from scipy.stats import kendalltau, norm, rankdata, spearmanr
from sklearn.covariance import LedoitWolf

from isice.estimator import SparsePrecision, SparsePrecisionCV
from isice.estimator.covariances import covariance, nearest_correlation, rank_correlation

from .chain import chain_edges, chain_samples


def with_gaps(x, share=0.2, seed=0):
    x = x.copy()
    x[np.random.default_rng(seed).random(x.shape) < share] = np.nan
    return x


def correlation(cov):
    deviation = np.sqrt(np.diag(cov))
    return cov / np.outer(deviation, deviation)


@pytest.mark.parametrize("gaps", [False, True])
def test_rank_correlations_are_those_of_scipy(gaps):
    x = np.round(2 * chain_samples(60)) / 2  # ties
    y = with_gaps(x) if gaps else x
    both = ~np.isnan(y[:, 0]) & ~np.isnan(y[:, 1])
    a, b = y[both, 0], y[both, 1]
    tau = np.sin(np.pi / 2 * kendalltau(a, b).statistic)
    assert rank_correlation(y, "kendall")[0, 1] == pytest.approx(tau)
    if not gaps:
        assert rank_correlation(y, "spearman")[0, 1] == pytest.approx(2 * np.sin(np.pi / 6 * spearmanr(a, b).statistic))
        scores = [norm.ppf(rankdata(v) / (len(v) + 1)) for v in (a, b)]
        assert rank_correlation(y, "nonparanormal")[0, 1] == pytest.approx(np.corrcoef(*scores)[0, 1])


def test_missing_values_leave_pairwise_correlations():
    x = with_gaps(chain_samples(200))
    cov = covariance(x, "empirical")
    both = ~np.isnan(x[:, 0]) & ~np.isnan(x[:, 1])
    assert correlation(cov)[0, 1] == pytest.approx(np.corrcoef(x[both, 0], x[both, 1])[0, 1])
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), np.nanstd(x, axis=0))
    few = covariance(with_gaps(chain_samples(12), 0.4), "empirical")
    assert np.linalg.eigvalsh(few)[0] > -1e-12


def test_the_projection_keeps_good_matrices_and_mends_others():
    good = correlation(np.cov(chain_samples(50).T))
    assert nearest_correlation(good) is good
    bad = np.array([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]])
    mended = nearest_correlation(bad)
    assert np.linalg.eigvalsh(bad)[0] < -0.1
    assert np.linalg.eigvalsh(mended)[0] > -1e-12
    np.testing.assert_allclose(np.diag(mended), 1.0)


def test_ranks_see_through_monotone_transformations():
    x = chain_samples(400)
    bent = np.exp(x - x.mean(axis=0))
    bent[:4] *= 50  # outliers
    for name in ("spearman", "kendall", "nonparanormal"):
        straight = SparsePrecision(0.15, covariance_estimator=name).fit(x)
        robust = SparsePrecision(0.15, covariance_estimator=name).fit(bent)
        assert (np.triu(robust.precision_ != 0, 1) & chain_edges()).sum() == 7
        assert np.abs(robust.partial_correlation_ - straight.partial_correlation_).max() < 0.1
    plain = SparsePrecision(0.15).fit(bent)
    assert (np.triu(plain.precision_ != 0, 1) & chain_edges()).sum() < 7


@pytest.mark.parametrize("source", ["empirical", "spearman", "kendall", "nonparanormal", LedoitWolf()])
@pytest.mark.parametrize("selection", ["cv", "ebic", "stars"])
def test_every_selection_takes_every_covariance(source, selection):
    model = SparsePrecisionCV(
        selection=selection, covariance_estimator=source, sparsities=8, n_refinements=1, tol=1e-4
    ).fit(chain_samples(600))
    assert (np.triu(model.precision_ != 0, 1) & chain_edges()).sum() == 7
    assert np.isfinite(model.selection_curve_).all()


@pytest.mark.parametrize("selection", ["cv", "ebic", "stars"])
def test_every_selection_takes_missing_values(selection):
    x = with_gaps(chain_samples(500), 0.1)
    model = SparsePrecisionCV(selection=selection, missing="pairwise", sparsities=8, n_refinements=0, tol=1e-4).fit(x)
    assert (np.triu(model.precision_ != 0, 1) & chain_edges()).sum() == 7
    np.testing.assert_allclose(model.location_, np.nanmean(x, axis=0))


def test_a_scikit_learn_covariance_and_a_precomputed_matrix_are_what_they_say():
    x = chain_samples(40)
    shrunk = SparsePrecision(0.1, covariance_estimator=LedoitWolf()).fit(x)
    given = SparsePrecision(0.1, covariance="precomputed").fit(LedoitWolf().fit(x).covariance_)
    np.testing.assert_allclose(shrunk.precision_, given.precision_)
    assert given.n_samples_ is None


def test_weights_are_repetitions():
    x, times = chain_samples(30), np.arange(30) % 3
    weighted = SparsePrecision(0.1).fit(x, sample_weight=times)
    repeated = SparsePrecision(0.1).fit(np.repeat(x, times, axis=0))
    np.testing.assert_allclose(weighted.precision_, repeated.precision_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(weighted.location_, repeated.location_)
    assert weighted.n_samples_ == pytest.approx(times.sum() ** 2 / (times**2).sum())


@pytest.mark.parametrize(
    ("options", "data", "message"),
    [
        ({"covariance_estimator": "spearmen"}, None, "Did you mean 'spearman'"),
        ({}, "gaps", "NaN"),
        ({"missing": "impute"}, None, "expected missing to be one of"),
        ({"covariance": "precomputed"}, None, r"precomputed covariance matrix \(D, D\), got shape"),
        ({"covariance_estimator": "kendall"}, "weights", "expected no sample_weight"),
    ],
)
def test_what_cannot_be_used_is_refused(options, data, message):
    x = chain_samples(20)
    weight = np.ones(20) if data == "weights" else None
    with pytest.raises(ValueError, match=message):
        SparsePrecision(**options).fit(with_gaps(x) if data == "gaps" else x, sample_weight=weight)


def test_a_pair_that_is_never_observed_together_is_named():
    x = chain_samples(20)
    x[:10, 2], x[10:, 5] = np.nan, np.nan
    with pytest.raises(ValueError, match="got none for 2 and 5"):
        SparsePrecision(missing="pairwise").fit(x)


def test_a_class_instead_of_an_estimator_is_refused():
    with pytest.raises(TypeError, match="pass an instance"):
        SparsePrecision(covariance_estimator=LedoitWolf).fit(chain_samples(20))
