"""The estimators: scikit-learn's checks, agreement with its graphical lasso, choice of λ."""

import inspect

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.covariance import EmpiricalCovariance, GraphicalLasso, GraphicalLassoCV, log_likelihood
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.utils.estimator_checks import parametrize_with_checks

import isice.functional as F
from isice.estimator import (
    JointSparsePrecision,
    LatentSparsePrecision,
    SparsePrecision,
    SparsePrecisionCV,
    selection,
    sparse_precision,
)
from isice.functional import graphical_lasso

from .chain import chain_edges, chain_samples


@parametrize_with_checks(
    [
        SparsePrecision(),
        SparsePrecision(missing="pairwise"),
        SparsePrecisionCV(sparsities=3, cv=2, n_refinements=0, reweight="mcp"),
        SparsePrecisionCV(selection="ebic", sparsities=3, n_refinements=0),
        SparsePrecisionCV(selection="stars", sparsities=3, n_subsamples=3, n_refinements=1),
    ]
)
def test_keeps_scikit_learns_rules(estimator, check):
    check(estimator)


def test_agrees_with_scikit_learn():
    x = chain_samples(300)
    ours = SparsePrecision(0.1, scale="raw", tol=1e-10).fit(x)
    theirs = GraphicalLasso(0.1, tol=1e-9, enet_tol=1e-10, max_iter=1000).fit(x)
    np.testing.assert_allclose(ours.precision_, theirs.precision_, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(ours.location_, theirs.location_)
    assert ours.score(x) == pytest.approx(theirs.score(x), rel=1e-4)


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer, load_diabetes])
def test_a_gap_leaves_few_edges_in_doubt(load):
    """The figures of docs/statistics.md."""
    cov = torch.as_tensor(np.corrcoef(load().data.T))
    sparsity = torch.tensor([0.3, 0.1, 0.03], dtype=torch.float64)
    edges = [graphical_lasso(cov, sparsity, tol=tol).precision.triu(1) != 0 for tol in (1e-12, 1e-4, 1e-6)]
    assert 17 <= int(edges[0].sum((1, 2)).min()) <= int(edges[0].sum((1, 2)).max()) <= 215
    for rough in edges[1:]:
        assert int((rough != edges[0]).sum((1, 2)).max()) <= 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_function_and_estimator_have_one_default_scale_and_tolerance(dtype):
    """Variables in different units, where the scale decides the graph."""
    x = chain_samples(60, size=5) * np.array([0.3, 1.0, 4.0, 0.5, 2.0])
    model = SparsePrecision(0.1).fit(x)
    with pytest.warns(FutureWarning, match=r"scale='raw' for the former"):
        result = graphical_lasso(torch.as_tensor(model.sample_covariance_, dtype=dtype), 0.1)
    np.testing.assert_array_equal(result.precision.numpy() != 0, model.precision_ != 0)
    np.testing.assert_allclose(result.precision.numpy(), model.precision_, rtol=1e-2, atol=1e-3)


def test_options_shared_by_functions_and_estimators_have_equal_defaults():
    pairs = [
        (F.graphical_lasso, SparsePrecision),
        (F.graphical_lasso, SparsePrecisionCV),
        (F.joint_graphical_lasso, JointSparsePrecision),
        (F.latent_graphical_lasso, LatentSparsePrecision),
    ]
    for function, estimator in pairs:
        mine, theirs = (inspect.signature(f).parameters for f in (function, estimator))
        shared = (mine.keys() & theirs.keys()) - {"sparsity", "similarity", "trace_penalty"}
        defaults = {name: mine[name].default for name in shared} | {"scale": "correlation"}
        assert defaults == {name: theirs[name].default for name in shared}


def test_unit_variances_and_a_given_scale_need_no_warning(recwarn):
    cov = torch.tensor([[1.0, 0.3], [0.3, 1.0]])
    F.graphical_lasso(cov, 0.1)
    F.graphical_lasso(4 * cov, 0.1, scale="raw")
    F.graphical_lasso(4 * cov, 0.1, check_input=False)
    assert not recwarn.list


def test_learned_values_belong_together():
    model = SparsePrecision(0.15).fit(chain_samples(100))
    np.testing.assert_allclose(model.precision_ @ model.covariance_, np.eye(8), atol=1e-8)
    np.testing.assert_array_equal(model.partial_correlation_ != 0, model.precision_ != 0)
    np.testing.assert_allclose(np.diag(model.partial_correlation_), 1.0)
    scale = np.sqrt(np.diag(model.precision_))
    off = ~np.eye(8, dtype=bool)
    np.testing.assert_allclose(model.partial_correlation_[off], (-model.precision_ / np.outer(scale, scale))[off])
    assert 0 <= model.dual_gap_ <= 8e-6
    assert model.n_iter_ >= 1


@pytest.mark.parametrize(
    "model",
    [SparsePrecision(threshold=0.2), SparsePrecisionCV(selection="ebic"), LatentSparsePrecision()],
    ids=lambda model: type(model).__name__,
)
def test_units_of_the_variables_do_not_change_the_graph(model):
    x = chain_samples(100)
    units = 10.0 ** np.linspace(-8, 8, 8)
    ours, scaled = clone(model).fit(x), clone(model).fit(x * units)
    assert np.count_nonzero(np.triu(ours.partial_correlation_, 1)) > 6
    np.testing.assert_allclose(scaled.partial_correlation_, ours.partial_correlation_, atol=1e-8)
    np.testing.assert_allclose(scaled.covariance_, ours.covariance_ * np.outer(units, units), rtol=1e-6)


def test_a_batch_of_subjects_is_what_each_gives_alone():
    subjects = [chain_samples(n, seed=n) for n in (12, 40, 100)]
    for model, x in zip(SparsePrecision(0.2).fit_batch(subjects), subjects, strict=True):
        alone = SparsePrecision(0.2).fit(x)
        np.testing.assert_allclose(model.precision_, alone.precision_, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(model.location_, x.mean(axis=0))
        assert model.n_iter_ == alone.n_iter_


def test_subjects_must_share_their_variables():
    with pytest.raises(ValueError, match=r"same number of variables, got \[3, 4\]"):
        SparsePrecision().fit_batch([chain_samples(5, 3), chain_samples(5, 4)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": -1}, r"^SparsePrecision: expected a finite threshold ≥ 0.0, got -1\."),
        ({"sparsity": -1}, r"^SparsePrecision: expected a finite sparsity ≥ 0.0, got -1\."),
        ({"tol": 0.0}, r"^SparsePrecision: expected a finite tol > 0.0, got 0.0\."),
        ({"max_iter": 0}, r"^SparsePrecision: expected max_iter ≥ 1, got 0\."),
        ({"scale": "trase"}, r"^SparsePrecision: expected scale to be one of .* Did you mean 'trace'"),
    ],
)
def test_parameters_are_refused_in_the_words_of_the_user(options, message):
    with pytest.raises(ValueError, match=message):
        SparsePrecision(**options).fit(chain_samples(20))


@pytest.mark.parametrize("name", ["sparsity", "threshold", "tol", "max_iter", "penalize_diagonal", "assume_centered"])
@pytest.mark.parametrize("value", [None, "a"])
def test_what_is_no_number_is_refused_by_name(name, value):
    with pytest.raises(TypeError, match=f"^SparsePrecision: expected {name} to be "):
        SparsePrecision(**{name: value}).fit(chain_samples(20))


def test_numpy_numbers_are_numbers():
    x = chain_samples(20)
    SparsePrecision(penalize_diagonal=np.True_, assume_centered=np.False_).fit(x)
    assert SparsePrecision(np.int64(1), max_iter=np.int32(5)).fit(x).dual_gap_ == 0.0


def true_and_false_edges(selection):
    model = SparsePrecisionCV(selection=selection, gamma=1.0, sparsities=25).fit(chain_samples(2000))
    found = np.triu(model.precision_ != 0, 1)
    return int((found & chain_edges()).sum()), int((found & ~chain_edges()).sum())


def test_every_selection_finds_the_chain_and_stars_nothing_else():
    assert true_and_false_edges("stars") == (7, 0)
    by_ebic, by_cv = true_and_false_edges("ebic"), true_and_false_edges("cv")
    assert by_ebic[0] == by_cv[0] == 7
    assert by_ebic[1] < by_cv[1]


def test_cross_validation_scores_are_held_out_likelihoods():
    x, folds = chain_samples(60), KFold(3)
    model = SparsePrecisionCV(cv=folds, sparsities=[0.3, 0.1, 0.03], tol=1e-9).fit(x)
    assert model.sparsities_.tolist() == [0.3, 0.1, 0.03]
    for sparsity, score in zip(model.sparsities_, model.selection_curve_, strict=True):
        expected = []
        for train, test in folds.split(x):
            fitted = SparsePrecision(sparsity, tol=1e-9).fit(x[train])
            centred = x[test] - x[train].mean(axis=0)
            expected.append(log_likelihood(centred.T @ centred / len(test), fitted.precision_))
        assert score == pytest.approx(np.mean(expected), rel=1e-6)
    assert model.sparsity_ == model.sparsities_[np.argmax(model.selection_curve_)]
    np.testing.assert_allclose(
        model.precision_, SparsePrecision(model.sparsity_, tol=1e-9).fit(x).precision_, rtol=1e-4
    )


def test_scikit_learn_centres_held_out_samples_at_their_own_mean():
    """A statement of docs/statistics.md."""
    x, folds = chain_samples(60), KFold(3)
    theirs = GraphicalLassoCV(alphas=[0.2, 0.1], cv=folds, tol=1e-8, enet_tol=1e-8).fit(x).cv_results_
    ours = SparsePrecisionCV(alphas=[0.2, 0.1], cv=folds, tol=1e-9).fit(x).cv_results_
    assert theirs["alphas"].tolist()[:2] == ours["alphas"].tolist() == [0.2, 0.1]
    for fold, (train, test) in enumerate(folds.split(x)):
        own = log_likelihood(
            np.cov(x[test].T, bias=True), SparsePrecision(alpha=0.1, tol=1e-9).fit(x[train]).precision_
        )
        assert theirs[f"split{fold}_test_score"][1] == pytest.approx(own, rel=1e-3)
        assert ours[f"split{fold}_test_score"][1] < own


def test_ebic_is_its_definition():
    x = chain_samples(50)
    model = SparsePrecisionCV(selection="ebic", gamma=0.5, sparsities=[0.2]).fit(x)
    centred = x - x.mean(axis=0)
    cov = centred.T @ centred / 50
    likelihood = 25 * (np.linalg.slogdet(model.precision_)[1] - np.trace(cov @ model.precision_))
    edges = np.count_nonzero(np.triu(model.precision_, 1))
    assert model.selection_curve_[0] == pytest.approx(-2 * likelihood + edges * np.log(50) + 2 * edges * np.log(8))


def test_stars_instability_grows_along_the_path_and_is_reproducible():
    first = SparsePrecisionCV(selection="stars", random_state=3).fit(chain_samples(80))
    again = SparsePrecisionCV(selection="stars", random_state=3).fit(chain_samples(80))
    np.testing.assert_array_equal(first.selection_curve_, again.selection_curve_)
    assert np.all(np.diff(first.selection_curve_) >= 0)
    assert first.selection_curve_[0] <= 0.05
    assert first.selection_curve_[-1] <= 0.5


def test_the_automatic_grid_starts_at_a_diagonal_matrix():
    model = SparsePrecisionCV(selection="ebic", sparsities=4).fit(chain_samples(60))
    assert np.count_nonzero(model.precision_path_[0]) == 8
    assert np.count_nonzero(model.precision_path_[-1]) > 8
    np.testing.assert_allclose(model.sparsities_[-1], 0.01 * model.sparsities_[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"selection": "aic"}, "expected selection to be one of"),
        ({"sparsities": [0.1, 0.0]}, "a sequence of finite numbers > 0, got"),
        ({"selection": "ebic", "gamma": -1.0}, "expected a finite gamma"),
    ],
)
def test_wrong_options_are_refused_at_fit(options, message):
    with pytest.raises(ValueError, match=message):
        SparsePrecisionCV(**options).fit(chain_samples(20))


@pytest.mark.parametrize("options", [{}, {"penalize_diagonal": True}, {"scale": "raw"}])
@pytest.mark.parametrize("value", [1.0, 0.1])  # the mean of many 0.1 is not 0.1
def test_a_constant_variable_is_named(options, value):
    x = chain_samples(23)
    x[:, 3] = value
    with pytest.raises(ValueError, match=r"got constant values of 3; drop constant variables"):
        SparsePrecision(**options).fit(x)


@pytest.mark.parametrize("scale", ["raw", "trace"])
def test_a_constant_variable_is_fine_with_a_penalized_diagonal_unless_its_scale_is_zero(scale, recwarn):
    x = chain_samples(20)
    x[:, 3] = 1.0
    model = SparsePrecision(0.1, scale=scale, penalize_diagonal=True).fit(x)
    unit = x.var(axis=0).sum() if scale == "trace" else 1.0
    assert model.precision_[3, 3] == pytest.approx(1 / (0.1 * unit))
    SparsePrecisionCV(scale=scale, penalize_diagonal=True, sparsities=[0.3, 0.1]).fit(x)
    assert not [warning for warning in recwarn if "constant in some fold" in str(warning.message)]


@pytest.mark.parametrize("size", [8, 70])  # a batch, and a path
def test_n_jobs_limits_the_threads_during_the_fit_only(size, monkeypatch):
    before, seen = torch.get_num_threads(), []
    record = lambda solve: lambda *args, **options: seen.append(torch.get_num_threads()) or solve(*args, **options)  # noqa: E731
    monkeypatch.setattr(sparse_precision, "graphical_lasso", record(sparse_precision.graphical_lasso))
    monkeypatch.setattr(selection, "solve_path", record(selection.solve_path))
    try:
        torch.set_num_threads(2)
        SparsePrecisionCV(selection="ebic", sparsities=[0.5], n_jobs=1).fit(chain_samples(100, size))
        assert seen == [1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("model", [SparsePrecision(), SparsePrecisionCV(selection="ebic", sparsities=3)])
def test_a_variable_that_is_constant_where_the_weight_is_positive_is_named(model):
    x = np.random.default_rng(0).normal(size=(60, 5))
    x[:30, 2] = 0.1
    with pytest.raises(ValueError, match=r"got constant values of 2; drop constant variables"):
        clone(model).fit(x, sample_weight=np.r_[np.ones(30), np.zeros(30)])


def test_about_zero_a_constant_variable_has_a_second_moment():
    x = np.random.default_rng(0).normal(size=(60, 3))
    x[:, 0] = 1.0
    model = SparsePrecision(0.9, assume_centered=True).fit(x)
    np.testing.assert_allclose(model.precision_[0, 0], 1.0, rtol=1e-6)
    x[:, 0] = 0.0
    with pytest.raises(ValueError, match=r"got constant values of 0"):
        SparsePrecision(0.9, assume_centered=True).fit(x)


def test_samples_with_missing_values_have_a_score():
    x = chain_samples(200, 5)
    complete = SparsePrecision(0.1).fit(x)
    assert complete.score(x) == pytest.approx(EmpiricalCovariance.score(complete, x), rel=1e-12)
    x[np.random.default_rng(1).random(x.shape) < 0.05] = np.nan
    search = GridSearchCV(SparsePrecision(missing="pairwise"), {"sparsity": [0.9, 0.1]}).fit(x)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_params_ == {"sparsity": 0.1}


def test_a_score_needs_a_fit():
    with pytest.raises(NotFittedError):
        SparsePrecision().score(np.eye(3))


@pytest.mark.parametrize("n_jobs", [0, 1.5, "a"])
def test_a_wrong_number_of_threads_is_refused(n_jobs):
    with pytest.raises(ValueError, match="expected n_jobs as None, a number of threads or −1"):
        SparsePrecision(n_jobs=n_jobs).fit(chain_samples(20, 3))


@pytest.mark.parametrize("reweight", ["adaptive", "scad", "mcp"])
def test_reweighting_no_penalty_changes_nothing(reweight):
    x = chain_samples(100, 4)
    found, plain = SparsePrecision(0, reweight=reweight).fit(x), SparsePrecision(0).fit(x)
    np.testing.assert_allclose(found.precision_, plain.precision_, rtol=1e-5)
    assert not hasattr(found, "costs_")
