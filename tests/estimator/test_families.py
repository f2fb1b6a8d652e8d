"""The estimators of classes and of hidden variables: scikit-learn's rules, values."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.covariance import empirical_covariance, log_likelihood
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.utils.estimator_checks import parametrize_with_checks

import isice.functional as F
from isice.estimator import JointSparsePrecision, LatentSparsePrecision, SparsePrecision, SparsePrecisionCV

from .chain import chain_edges, chain_samples


@parametrize_with_checks([JointSparsePrecision(tol=1e-4), LatentSparsePrecision(tol=1e-3)])
def test_keeps_scikit_learns_rules(estimator, check):
    check(estimator)


def two_classes():
    x = np.vstack([chain_samples(80, seed=1), chain_samples(40, seed=2)])
    return x, np.repeat(["big", "small"], [80, 40])


@pytest.mark.parametrize("penalty", ["group", "fused"])
def test_classes_are_the_joint_graphical_lasso_weighted_by_their_samples(penalty):
    x, y = two_classes()
    model = JointSparsePrecision(0.1, 0.05, penalty=penalty).fit(x, y)
    cov = torch.as_tensor(np.stack([empirical_covariance(x[y == label]) for label in ("big", "small")]))
    expected = F.joint_graphical_lasso(
        cov,
        0.1,
        0.05,
        penalty=penalty,
        class_weights=torch.tensor([4 / 3, 2 / 3], dtype=torch.float64),
        scale="correlation",
        tol=1e-6,
    )
    np.testing.assert_allclose(model.precision_, expected.precision.numpy(), rtol=1e-9, atol=1e-12)
    assert model.classes_.tolist() == ["big", "small"]
    np.testing.assert_allclose(model.location_[1], x[80:].mean(axis=0))
    scores = [
        log_likelihood(empirical_covariance(x[y == label] - mean, assume_centered=True), precision)
        for label, mean, precision in zip(model.classes_, model.location_, model.precision_, strict=True)
    ]
    assert model.score(x, y) == pytest.approx((80 * scores[0] + 40 * scores[1]) / 120)


def test_a_small_class_borrows_strength():
    x = np.vstack([chain_samples(500, seed=1), chain_samples(25, seed=2)])
    y = np.repeat([0, 1], [500, 25])
    test = chain_samples(2000, seed=3)
    alone = JointSparsePrecision(0.1, 0.0).fit(x, y)
    joint = JointSparsePrecision(0.02, 0.1, penalty="fused").fit(x, y)
    assert joint.score(test, np.ones(2000, int)) > alone.score(test, np.ones(2000, int))
    assert (np.triu(joint.precision_[1] != 0, 1) & chain_edges()).sum() == 7


def test_penalties_are_chosen_by_grid_search():
    x = np.vstack([chain_samples(200, seed=1), chain_samples(40, seed=2)])
    y = np.repeat([0, 1], [200, 40])
    grid = {"sparsity": [0.3, 0.05], "similarity": [0.0, 0.1]}
    search = GridSearchCV(JointSparsePrecision(penalty="fused", tol=1e-4), grid, cv=StratifiedKFold(3)).fit(x, y)
    assert search.best_params_ == {"sparsity": 0.05, "similarity": 0.1}
    latent = GridSearchCV(LatentSparsePrecision(tol=1e-4), {"sparsity": [0.5, 0.05]}, cv=3).fit(x)
    assert latent.best_params_ == {"sparsity": 0.05}


def test_periods_change_seldom():
    x = np.vstack([chain_samples(60, seed=s) for s in range(4)])
    model = JointSparsePrecision(0.05, 0.3, penalty="time_varying").fit(x, np.repeat(np.arange(4), 60))
    unit = np.sqrt(np.stack([x[60 * k : 60 * k + 60].var(axis=0) for k in range(4)]))
    standard = model.precision_ * unit[:, :, None] * unit[:, None, :]
    off = ~np.eye(8, dtype=bool)
    changes = np.abs(np.diff(standard, axis=0))[:, off] > 1e-9
    assert changes.mean() < 0.2
    assert (np.triu(model.precision_ != 0, 1).all(axis=0) & chain_edges()).sum() == 7


def test_hidden_causes_leave_the_graph():
    rng = np.random.default_rng(0)
    x = chain_samples(3000) + 1.5 * rng.normal(size=(3000, 1))
    model = LatentSparsePrecision(0.1, 0.35).fit(x)
    assert model.rank_ == 1
    np.testing.assert_allclose(model.sparse_ - model.low_rank_, model.precision_)
    np.testing.assert_allclose(model.precision_ @ model.covariance_, np.eye(8), atol=1e-8)
    edges = set(map(tuple, np.argwhere(np.triu(chain_edges()))))
    found = set(model.to_networkx().edges)
    assert edges <= found
    plain = F.graphical_lasso(torch.as_tensor(np.cov(x.T)), 0.1, scale="correlation").precision
    assert len(found - edges) < (int(torch.count_nonzero(plain)) - 8) // 2 - 7


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (JointSparsePrecision(similarity=-1.0), "finite similarity ≥ 0"),
        (JointSparsePrecision(penalty="fusd"), "Did you mean 'fused'"),
        (JointSparsePrecision(covariance_estimator="precomputed"), "isice.functional.joint_graphical_lasso"),
        (LatentSparsePrecision(trace_penalty=0.0), "finite trace_penalty > 0"),
    ],
)
def test_wrong_options_are_refused_at_fit(model, message):
    x, y = two_classes()
    with pytest.raises(ValueError, match=message):
        model.fit(x, y)


@pytest.mark.parametrize("model", [JointSparsePrecision(0.2, 0.05), LatentSparsePrecision(0.2, 2.0)])
def test_penalty_weights_allow_and_forbid_edges(model):
    x, y = two_classes()
    weights = np.ones((8, 8))
    weights[0, 7] = weights[7, 0] = 0.0
    weights[0, 1] = weights[1, 0] = 1e6
    plain, weighted = (clone(model).set_params(weights=w).fit(x, y) for w in (None, weights))
    plain, weighted = (np.atleast_3d(getattr(m, "sparse_", m.precision_).T) for m in (plain, weighted))
    assert np.all(plain[0, 1] != 0)
    assert np.all(plain[0, 7] == 0)
    assert np.all(weighted[0, 1] == 0)
    assert np.all(weighted[0, 7] != 0)


@pytest.mark.parametrize("model", [SparsePrecision(), SparsePrecisionCV(), JointSparsePrecision()])
def test_weights_are_one_matrix(model):
    with pytest.raises(ValueError, match=r"expected weights \(D, D\), one factor per entry, got shape \(2, 8, 8\)"):
        clone(model).set_params(weights=np.ones((2, 8, 8))).fit(*two_classes())


@pytest.mark.parametrize("name", ["sparsity", "similarity", "trace_penalty"])
def test_a_penalty_matrix_is_refused_and_weights_are_named(name):
    model = (LatentSparsePrecision if name == "trace_penalty" else JointSparsePrecision)(**{name: np.ones((8, 8))})
    with pytest.raises(TypeError, match=rf"expected {name} to be one number, got an array .* as weights="):
        model.fit(*two_classes())


def test_centred_classes_have_no_mean():
    x, y = two_classes()
    assert not JointSparsePrecision(assume_centered=True).fit(x, y).location_.any()
    assert JointSparsePrecision().fit(x, y).location_.all()


def test_constant_variables_are_named():
    x, y = np.random.default_rng(0).normal(size=(60, 4)), np.repeat(["a", "b"], 30)
    x[:30, 2] = 0.1
    with pytest.raises(ValueError, match=r"vary in class 'a', got constant values of 2; drop constant variables\."):
        JointSparsePrecision().fit(x, y)
    x[:, 2] = 0.1
    with pytest.raises(ValueError, match=r"expected variables that vary, got constant values of 2;"):
        LatentSparsePrecision().fit(x)


def test_classes_need_labels():
    x, y = two_classes()
    with pytest.raises(ValueError, match="requires y to be passed"):
        JointSparsePrecision().fit(x, None)
    model = JointSparsePrecision().fit(x, y)
    with pytest.raises(ValueError, match="requires y to be passed"):
        model.score(x, None)
    with pytest.raises(ValueError, match=r"expected labels of the fit, \['big', 'small'\], got \['none'\]"):
        model.score(x, np.where(y == "big", "none", y))


def test_each_class_has_a_graph():
    pytest.importorskip("networkx")
    x, y = np.random.default_rng(0).normal(size=(90, 3)), np.repeat(["a", "b", "c"], 30)
    x[:, 1] += 2 * x[:, 0]
    model = JointSparsePrecision(0.3, 0.1, n_jobs=1).fit(x, y)
    assert list(model.to_networkx("b").edges) == [(0, 1)]
    weight = model.to_networkx("b").edges[0, 1]["weight"]
    assert weight == model.partial_correlation_[1, 0, 1]
    with pytest.raises(ValueError, match=r"expected a label of \['a', 'b', 'c'\], got 'd'"):
        model.to_networkx("d")


@pytest.mark.parametrize("model", [JointSparsePrecision(), LatentSparsePrecision()])
def test_verbose_and_n_jobs_are_shared(model, capsys):
    model.set_params(verbose=True, n_jobs=-1).fit(chain_samples(40, 3), np.arange(40) % 2)
    assert " edges, " in capsys.readouterr().out
    model.set_params(sparsity=5.0).fit(chain_samples(40, 3), np.arange(40) % 2)
    assert ": 0 edges, " in capsys.readouterr().out
    with pytest.raises(ValueError, match="expected n_jobs"):
        model.set_params(n_jobs=0).fit(chain_samples(40, 3), np.arange(40) % 2)
