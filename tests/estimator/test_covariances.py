"""Covariances from weights, ranks, missing values, scikit-learn estimators; selection with them."""

import warnings

import numpy as np
import pytest
from scipy.stats import kendalltau, norm, rankdata, spearmanr
from sklearn.covariance import LedoitWolf
from sklearn.model_selection import KFold

from isice.estimator import LatentSparsePrecision, SparsePrecision, SparsePrecisionCV
from isice.estimator.covariances import _pairwise_covariance, covariance, nearest_correlation, rank_correlation

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


@pytest.mark.parametrize("source", ["spearman", "kendall", "nonparanormal"])
def test_rank_covariances_are_positive_semi_definite(source):
    x = with_gaps(chain_samples(12), 0.4)
    assert np.linalg.eigvalsh(rank_correlation(x, source))[0] < -0.01
    assert np.linalg.eigvalsh(correlation(covariance(x, source)))[0] > -1e-12


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
    estimator = LedoitWolf()
    SparsePrecision(0.1, covariance_estimator=estimator).fit(x)
    assert not hasattr(estimator, "covariance_")


def test_weights_are_repetitions():
    x, times = chain_samples(30), np.arange(30) % 3
    weighted = SparsePrecision(0.1).fit(x, sample_weight=times)
    repeated = SparsePrecision(0.1).fit(np.repeat(x, times, axis=0))
    np.testing.assert_allclose(weighted.precision_, repeated.precision_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(weighted.location_, repeated.location_)
    assert weighted.n_samples_ == pytest.approx(times.sum() ** 2 / (times**2).sum())


def test_the_scale_of_the_sample_weights_does_not_matter():
    x, weight = chain_samples(30), 1.0 + np.arange(30)
    models = [SparsePrecision(0.1).fit(x, sample_weight=factor * weight) for factor in (1.0, 1e-300, 1e300)]
    for model in models[1:]:
        np.testing.assert_allclose(model.precision_, models[0].precision_, rtol=1e-9)
        assert model.n_samples_ == pytest.approx(models[0].n_samples_)


@pytest.mark.parametrize(
    ("options", "data", "message"),
    [
        ({"covariance_estimator": "spearmen"}, None, "Did you mean 'spearman'"),
        ({}, "gaps", "NaN; pass missing='pairwise'"),
        ({"alpha": 0.1, "scale": "trace"}, None, "expected scale='raw' with alpha, got 'trace'; pass sparsity instead"),
        ({"sparsity": 0.3, "alpha": 0.1}, None, "expected sparsity or alpha, got both"),
        ({"covariance_estimator": "kendall", "covariance": "spearman"}, None, "names of one option"),
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


@pytest.mark.parametrize("source", ["empirical", "spearman", "kendall", "nonparanormal"])
@pytest.mark.parametrize(("both", "count"), [(0, "none"), (1, "1")])
def test_a_pair_that_is_observed_together_less_than_twice_is_named(source, both, count):
    x = chain_samples(20)
    x[: 10 - both, 2], x[10:, 5] = np.nan, np.nan
    with pytest.raises(ValueError, match=f"got {count} for 2 and 5"):
        SparsePrecision(missing="pairwise", covariance_estimator=source).fit(x)


@pytest.mark.parametrize("source", ["empirical", "spearman", "kendall"])
def test_a_variable_that_is_never_observed_in_a_fold_is_named(source, recwarn):
    x = chain_samples(40, 4)
    x[8:, 2] = np.nan
    model = SparsePrecisionCV(missing="pairwise", covariance_estimator=source, sparsities=3, cv=KFold(5))
    with pytest.raises(ValueError, match=r"observed values of each variable, .* got none of 2; .* use fewer folds"):
        model.fit(x)
    assert not recwarn.list


@pytest.mark.parametrize("source", ["empirical", "spearman", "kendall"])
def test_a_variable_that_is_never_observed_is_named(source):
    x = chain_samples(40, 4)
    x[:, 2] = np.nan
    with pytest.raises(ValueError, match=r"observed values of each variable, .* got none of 2; drop it"):
        SparsePrecision(missing="pairwise", covariance_estimator=source).fit(x)


def test_missing_values_are_refused_with_an_estimator_that_cannot_take_them():
    x = chain_samples(40, 4)
    x[0, 0] = np.nan
    with pytest.raises(ValueError, match=r"without NaN for covariance_estimator=LedoitWolf\(\), .* 'spearman'"):
        SparsePrecision(missing="pairwise", covariance_estimator=LedoitWolf()).fit(x)


def test_ranks_with_gaps_are_among_the_observed_values():
    x = with_gaps(chain_samples(40))
    both = ~np.isnan(x[:, 0]) & ~np.isnan(x[:, 1])
    a, b = (rankdata(x[:, k], nan_policy="omit")[both] for k in (0, 1))
    expected = 2 * np.sin(np.pi / 6 * np.corrcoef(a, b)[0, 1])
    assert rank_correlation(x, "spearman")[0, 1] == pytest.approx(expected)


def test_a_constant_variable_among_gaps_is_uncorrelated_or_named():
    """The pairwise correlations are indefinite, so they are projected."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(60, 8))
    z[:, 1], z[:, 2] = z[:, 0] + 0.1 * rng.normal(size=60), z[:, 0] - 0.1 * rng.normal(size=60)
    z[:, 7] = 0.0
    z = with_gaps(z, 0.3)
    part = z[:, :7]
    assert np.linalg.eigvalsh(correlation(_pairwise_covariance(part, None, False)))[0] < 0
    cov = covariance(z, "empirical")
    assert not cov[7].any()
    assert np.linalg.eigvalsh(cov)[0] > -1e-12
    model = SparsePrecision(0.1, scale="raw", penalize_diagonal=True, missing="pairwise").fit(z)
    assert not model.partial_correlation_[7, :7].any()
    with pytest.raises(ValueError, match="constant values of 7"):
        SparsePrecision(missing="pairwise").fit(z)
    z[-2:, 7] = 2.0, 1.0  # in one fold
    with pytest.warns(UserWarning, match="treated as uncorrelated there: 7"):
        SparsePrecisionCV(missing="pairwise", sparsities=[0.5, 0.3], cv=KFold(3)).fit(z)


def test_a_variable_that_is_constant_in_a_fold_is_named_with_a_shrunk_covariance_too():
    x = chain_samples(40)
    x[20:, 3] = 0.0
    with pytest.warns(UserWarning, match="treated as uncorrelated there: 3"):
        SparsePrecisionCV(covariance_estimator=LedoitWolf(), sparsities=[0.5, 0.3], cv=KFold(2)).fit(x)


@pytest.mark.parametrize("kind", [SparsePrecision, LatentSparsePrecision])
def test_a_precomputed_matrix_is_copied_and_may_be_read_only(kind):
    cov = np.cov(chain_samples(40).T)
    cov.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = kind(covariance_estimator="precomputed").fit(cov)
        SparsePrecision(0.1, weights=cov**2, covariance_estimator="precomputed").fit(cov)
    with pytest.raises(ValueError, match=r"precomputed covariance matrix \(D, D\), got shape"):
        kind(covariance_estimator="precomputed").fit(cov[:3])
    if kind is SparsePrecision:
        cov.setflags(write=True)
        before = cov[0, 0]
        cov[0, 0] = 99.0
        assert model.sample_covariance_[0, 0] == before


def test_a_class_instead_of_an_estimator_is_refused():
    with pytest.raises(TypeError, match="pass an instance"):
        SparsePrecision(covariance_estimator=LedoitWolf).fit(chain_samples(20))
