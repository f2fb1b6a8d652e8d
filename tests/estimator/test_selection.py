"""The choice of λ: edges of the grid, refinement, groups, weights, scikit-learn's names."""

import pickle
import warnings

import numpy as np
import pytest
from scipy.stats import sem
from sklearn.covariance import GraphicalLasso
from sklearn.datasets import load_diabetes
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GroupKFold, KFold, PredefinedSplit, ShuffleSplit, StratifiedKFold

from isice.estimator import SparsePrecision, SparsePrecisionCV, parts

from .chain import chain_graph, chain_samples, random_graph


def test_the_grid_is_extended_if_its_smallest_value_is_best():
    x = load_diabetes().data
    with pytest.warns(UserWarning, match="is the smallest of the grid; lower min_ratio"):
        short = SparsePrecisionCV(sparsities=10, n_refinements=0).fit(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = SparsePrecisionCV(sparsities=10).fit(x)
        longer = SparsePrecisionCV(sparsities=30, min_ratio=1e-4, n_refinements=0).fit(x)
    assert found.sparsity_ < short.sparsity_
    assert found.sparsities_[-1] < found.sparsity_ < found.sparsities_[0]
    assert found.selection_curve_.max() >= longer.selection_curve_.max() - 1e-3
    assert found.selection_curve_.max() > short.selection_curve_.max() + 0.1


def test_the_grid_ends_at_a_hundred_thousandth_of_the_largest():
    x = chain_samples(2, 3)  # without a maximum of the likelihood
    for min_ratio in (0.01, 0.05):
        with pytest.warns(UserWarning, match="is the smallest of the grid"):
            model = SparsePrecisionCV(selection="ebic", min_ratio=min_ratio).fit(x)
        assert model.sparsities_[-1] == pytest.approx(1e-5 * model.sparsities_[0], rel=1e-6)


def test_the_grid_is_refined_around_the_best():
    x = chain_samples(60)
    coarse = SparsePrecisionCV(sparsities=6, n_refinements=0).fit(x)
    fine = SparsePrecisionCV(sparsities=6, n_refinements=2).fit(x)
    assert len(coarse.sparsities_) == 6
    assert len(fine.sparsities_) == 6 + 2 * 6
    assert set(coarse.sparsities_) <= set(fine.sparsities_)
    assert np.all(np.diff(fine.sparsities_) < 0)
    assert fine.selection_curve_.max() >= coarse.selection_curve_.max()
    assert fine.precision_path_.shape == (18, 8, 8)
    np.testing.assert_array_equal(fine.precision_, fine.precision_path_[np.argmax(fine.selection_curve_)])


@pytest.mark.parametrize(("grid", "message"), [([0.9, 0.5], "smallest of the grid"), ([0.01, 0.005], "largest of the")])
def test_an_optimum_at_the_edge_of_a_given_grid_is_reported(grid, message):
    with pytest.warns(UserWarning, match=message):
        model = SparsePrecisionCV(sparsities=grid).fit(chain_samples(60))
    assert model.sparsities_.tolist() == grid


def test_stars_reports_that_nothing_is_stable():
    with pytest.warns(UserWarning, match=r"no λ of the grid gives a stable graph: the smallest instability is 0\.\d+"):
        model = SparsePrecisionCV(selection="stars", sparsities=[0.1, 0.05]).fit(chain_samples(15))
    assert model.sparsity_ == 0.1


def test_a_variable_that_is_constant_in_one_fold_is_named_and_handled():
    x = chain_samples(40)
    x[10:, 3] = 1.0
    with pytest.warns(UserWarning, match=r"constant in some fold or subsample, .* uncorrelated there: 3;"):
        model = SparsePrecisionCV(cv=KFold(4), sparsities=[0.3, 0.1]).fit(x)
    assert np.isfinite(model.selection_curve_).all()


@pytest.mark.parametrize("source", ["spearman", "kendall", "nonparanormal"])
def test_rank_correlations_choose_the_same_after_a_monotone_transformation(source):
    x = chain_samples(150, 4)
    options = {"covariance_estimator": source, "sparsities": 8, "n_refinements": 0, "cv": 3}
    plain, transformed = (SparsePrecisionCV(**options).fit(samples) for samples in (x, np.exp(2 * x)))
    assert transformed.sparsity_ == pytest.approx(plain.sparsity_, rel=1e-6)
    np.testing.assert_allclose(transformed.selection_curve_, plain.selection_curve_, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cv": iter(())}, "expected cv to give folds, got none; pass a list"),
        (
            {"cv": [(np.arange(30), np.arange(0))]},
            "in the training and the test part of every fold, got none in fold 0",
        ),
        ({"selection": "stars", "instability": 5}, r"instability below 0\.5, .* got 5; 5 % is 0\.05"),
        ({"sparsities": "a"}, "a sequence of finite numbers > 0, got 'a'"),
    ],
)
def test_a_selection_that_would_say_nothing_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SparsePrecisionCV(**options).fit(chain_samples(30, 4))


def test_stars_needs_three_samples():
    with pytest.raises(ValueError, match="at least 3 samples of positive weight for selection='stars', got 2"):
        SparsePrecisionCV(selection="stars").fit(chain_samples(2, 4))


def test_labels_stratify_the_folds():
    x, y, options = chain_samples(40, 4), np.repeat([0, 1], [32, 8]), {"sparsities": [0.3, 0.1]}
    model = SparsePrecisionCV(cv=StratifiedKFold(4), **options).fit(x, y)
    same = SparsePrecisionCV(cv=list(StratifiedKFold(4).split(x, y)), **options).fit(x)
    np.testing.assert_array_equal(model.selection_curve_, same.selection_curve_)


def test_alphas_are_on_the_scale_of_the_covariance():
    x = chain_samples(80, 4) * np.array([1.0, 3.0, 0.2, 10.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = SparsePrecisionCV(alphas=[0.5, 0.1]).fit(x)
    np.testing.assert_array_equal(model.precision_, SparsePrecision(alpha=model.alpha_).fit(x).precision_)
    largest = np.abs(np.triu(np.cov(x.T, bias=True), 1)).max()
    assert SparsePrecisionCV(alphas=4, selection="ebic").fit(x).sparsities_[0] == pytest.approx(largest)


@pytest.mark.parametrize(
    ("samples", "n", "expected"),
    [
        (chain_graph, 400, [(19, 56), (19, 21), (19, 1), (19, 11)]),
        (random_graph, 400, [(19, 32), (15, 1), (14, 0), (14, 0)]),
        (random_graph, 100, [(14, 20), (1, 0), (3, 0), (9, 2)]),
    ],
)
def test_true_and_false_edges_of_the_selections(samples, n, expected):
    """The figures of docs/statistics.md, of three of its ten data sets."""
    settings = [{"selection": name} for name in ("cv", "ebic", "ebic", "stars")]
    settings[2]["reweight"] = "adaptive"
    for options, edges in zip(settings, expected, strict=True):
        counts = []
        for x, truth in (samples(n, seed=seed) for seed in range(3)):
            found = np.triu(SparsePrecisionCV(**options).fit(x).precision_ != 0, 1)
            counts.append(((found & truth).sum(), (found & ~truth).sum()))
        np.testing.assert_allclose(np.mean(counts, axis=0), edges, rtol=0.2, atol=2)


def test_ebic_counts_the_samples_of_pairs():
    x, truth = chain_graph(400)
    x[np.random.default_rng(0).random(x.shape) < 0.5] = np.nan
    options = {"selection": "ebic", "missing": "pairwise", "sparsities": [0.2], "gamma": 0.0}
    model = SparsePrecisionCV(**options).fit(x)
    pairs = [(~np.isnan(x[:, [i, j]]).any(axis=1)).sum() for i in range(20) for j in range(i)]
    edges = np.count_nonzero(np.triu(model.precision_, 1))
    fit = np.linalg.slogdet(model.precision_)[1] - (model.sample_covariance_ * model.precision_).sum()
    n = np.mean(pairs)
    assert model.selection_curve_[0] == pytest.approx(-n * fit + edges * np.log(n))
    doubled = SparsePrecisionCV(**options).fit(np.tile(x, (2, 1)), sample_weight=np.repeat([1.0, 0.0], 400))
    assert doubled.selection_curve_[0] == pytest.approx(model.selection_curve_[0])
    found = SparsePrecisionCV(selection="ebic", missing="pairwise", reweight="adaptive").fit(x).precision_ != 0
    assert found[truth].all()
    assert np.triu(found & ~truth, 1).sum() <= 5


def test_a_fold_without_weight_is_an_error():
    x, weight = chain_samples(60, 4), np.r_[np.zeros(12), np.ones(48)]
    splits = list(KFold(5).split(x))
    with pytest.raises(ValueError, match=r"positive weight in .* every fold, got none in fold 0;"):
        SparsePrecisionCV(cv=splits, sparsities=3).fit(x, sample_weight=weight)


@pytest.mark.parametrize("selection", ["cv", "ebic", "stars"])
def test_samples_of_weight_zero_are_left_out(selection):
    x, weight = chain_samples(60, 4), np.r_[np.zeros(12), np.ones(48)]
    fold = np.arange(60) % 3
    options = {"selection": selection, "sparsities": [0.3, 0.1], "n_subsamples": 3}
    weighted = SparsePrecisionCV(**options, cv=PredefinedSplit(fold)).fit(x, sample_weight=weight)
    without = SparsePrecisionCV(**options, cv=PredefinedSplit(fold[12:])).fit(x[12:])
    np.testing.assert_allclose(weighted.selection_curve_, without.selection_curve_, rtol=1e-6)


@pytest.mark.parametrize("source", ["spearman", "kendall", "nonparanormal"])
def test_rank_correlations_of_a_rare_category_are_selected(source):
    x = (np.random.default_rng(0).normal(size=(60, 4)) > 0).astype(float)
    x[:, 3] = 0
    x[3:6, 3] = 1
    with pytest.warns(UserWarning, match=r"uncorrelated there: 3;"):
        model = SparsePrecisionCV(cv=KFold(5), covariance_estimator=source, sparsities=[0.4, 0.2]).fit(x)
    assert np.isfinite(model.selection_curve_).all()


def test_weights_are_repetitions_in_every_fold():
    x, times, fold = chain_samples(45, 4), 1 + np.arange(45) % 3, np.arange(45) // 3 % 3
    options = {"sparsities": [0.3, 0.1, 0.05]}
    weighted = SparsePrecisionCV(**options, cv=PredefinedSplit(fold)).fit(x, sample_weight=times)
    split = PredefinedSplit(np.repeat(fold, times))
    repeated = SparsePrecisionCV(**options, cv=split).fit(np.repeat(x, times, axis=0))
    plain = SparsePrecisionCV(**options, cv=PredefinedSplit(fold)).fit(x)
    name = "split0_test_score"
    np.testing.assert_allclose(weighted.cv_results_[name], repeated.cv_results_[name], rtol=1e-6)
    assert not np.allclose(weighted.cv_results_[name], plain.cv_results_[name], rtol=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sparsities": np.full((4, 4), 0.1)}, "pass a penalty per entry as weights="),
        ({"sparsities": 0.1}, "a sequence of finite numbers > 0, got 0.1"),
        ({"sparsities": True}, "a sequence of finite numbers > 0, got True"),
        ({"min_ratio": 5.0}, "min_ratio below 1, got 5"),
        ({"sparsities": [0.1, np.inf]}, "a sequence of finite numbers > 0, got"),
        ({"sparsities": [0.1], "alphas": [0.2]}, "expected sparsities or alphas, got both"),
        ({"sparsities": np.array([0.1, 0.2]), "alphas": [0.2]}, "expected sparsities or alphas, got both"),
    ],
)
def test_a_grid_that_is_none_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SparsePrecisionCV(**options).fit(chain_samples(30, 4))


@pytest.mark.parametrize(
    "options", [{"min_ratio": "a"}, {"min_ratio": None}, {"n_refinements": 1.5}, {"max_memory": "1 GB"}]
)
def test_what_is_no_number_is_refused_by_name(options):
    (name,) = options
    with pytest.raises(TypeError, match=f"^SparsePrecisionCV: expected {name} to be a"):
        SparsePrecisionCV(**options).fit(chain_samples(30, 4))


def test_numpy_numbers_are_numbers():
    x, small = chain_samples(40, 4), {"sparsities": np.int64(3), "n_refinements": np.int64(0)}
    ebic = SparsePrecisionCV(selection="ebic", gamma=np.float32(0.5), min_ratio=np.float32(0.1), **small).fit(x)
    assert len(ebic.sparsities_) == 3
    stars = {"instability": np.float32(0.1), "n_subsamples": np.int64(4), "max_memory": np.int64(10**6)}
    SparsePrecisionCV(selection="stars", **stars, **small).fit(x)
    assert ebic.debiased(fdr=np.float32(0.1), n_samples=np.int64(40)).edges.shape == (4, 4)
    assert ebic.edge_stability(x, n_bootstraps=np.int64(2), confidence=np.float32(0.9)).low.shape == (4, 4)


def test_a_penalty_matrix_in_place_of_sparsity_is_refused():
    with pytest.raises(TypeError, match=r"sparsity to be one number, got an array of shape \(4, 4\); .* weights="):
        SparsePrecision(np.full((4, 4), 0.1)).fit(chain_samples(30, 4))
    with pytest.raises(ValueError, match=r"finite weights ≥ 0, got -0.1"):
        SparsePrecision(1.0, weights=-np.full((4, 4), 0.1)).fit(chain_samples(30, 4))


def test_groups_stay_together():
    x, groups = chain_samples(40), np.repeat(np.arange(8), 5)
    model = SparsePrecisionCV(cv=GroupKFold(4), sparsities=[0.3, 0.1, 0.03]).fit(x, groups=groups)
    folds = list(GroupKFold(4).split(x, groups=groups))
    same = SparsePrecisionCV(cv=folds, sparsities=[0.3, 0.1, 0.03]).fit(x)
    np.testing.assert_array_equal(model.selection_curve_, same.selection_curve_)
    other = SparsePrecisionCV(cv=4, sparsities=[0.3, 0.1, 0.03]).fit(x)
    assert not np.array_equal(model.selection_curve_, other.selection_curve_)


def test_samples_of_weight_zero_do_not_count():
    x = np.vstack([chain_samples(40), 100 + chain_samples(4, seed=1)])
    weight = np.r_[np.ones(40), np.zeros(4)]
    folds = list(KFold(4).split(x[:40]))
    with_outliers = [(np.r_[train, 40:44], test) for train, test in folds]
    options = {"sparsities": [0.3, 0.1, 0.03]}
    weighted = SparsePrecisionCV(cv=with_outliers, **options).fit(x, sample_weight=weight)
    plain = SparsePrecisionCV(cv=folds, **options).fit(x[:40])
    np.testing.assert_allclose(weighted.selection_curve_, plain.selection_curve_, rtol=1e-6)
    np.testing.assert_allclose(weighted.precision_, plain.precision_, rtol=1e-4, atol=1e-8)


def test_scikit_learns_names_mean_the_same():
    x = chain_samples(80)
    ours = SparsePrecision(alpha=0.2, tol=1e-10).fit(x)
    theirs = GraphicalLasso(alpha=0.2, tol=1e-9, enet_tol=1e-10, max_iter=1000).fit(x)
    np.testing.assert_allclose(ours.precision_, theirs.precision_, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(ours.precision_, SparsePrecision(0.2, scale="raw", tol=1e-10).fit(x).precision_)
    matrix = GraphicalLasso(alpha=0.2, covariance="precomputed").fit(np.cov(x.T))
    precomputed = SparsePrecision(alpha=0.2, covariance="precomputed").fit(np.cov(x.T))
    np.testing.assert_allclose(precomputed.precision_, matrix.precision_, atol=1e-2)
    objective, gap = ours.costs_[0]
    assert gap == ours.dual_gap_
    off = ~np.eye(8, dtype=bool)
    by_hand = -np.linalg.slogdet(ours.precision_)[1] + (ours.sample_covariance_ * ours.precision_).sum()
    assert objective == pytest.approx(by_hand + 0.2 * np.abs(ours.precision_[off]).sum())


def test_cv_results_are_those_of_the_splits():
    model = SparsePrecisionCV(alphas=[0.3, 0.1], cv=3, n_jobs=1).fit(chain_samples(60))
    results = model.cv_results_
    splits = np.stack([results[f"split{fold}_test_score"] for fold in range(3)])
    assert results["alphas"].tolist() == model.sparsities_.tolist() == [0.3, 0.1]
    np.testing.assert_allclose(results["mean_test_score"], splits.mean(axis=0))
    np.testing.assert_allclose(results["std_test_score"], splits.std(axis=0))
    assert model.alpha_ == model.sparsity_


def test_the_spread_is_the_standard_error_over_the_folds():
    x = chain_samples(60)
    model = SparsePrecisionCV(sparsities=[0.6, 0.3, 0.1], cv=5).fit(x)
    splits = np.stack([model.cv_results_[f"split{fold}_test_score"] for fold in range(5)])
    np.testing.assert_allclose(model.selection_spread_, sem(splits, axis=0))
    one = SparsePrecisionCV(sparsities=[0.6, 0.3, 0.1], cv=ShuffleSplit(1, random_state=0)).fit(x)
    assert one.selection_spread_ is None  # unknown from a single fold
    assert one.plot_selection().get_xlabel() == "sparsity λ"


def test_penalty_weights_allow_and_forbid_edges():
    weights = np.ones((8, 8))
    weights[0, 7] = weights[7, 0] = 0.0
    weights[0, 1] = weights[1, 0] = 1e6
    model = SparsePrecision(0.1, weights=weights).fit(chain_samples(100))
    assert model.precision_[0, 7] != 0
    assert model.precision_[0, 1] == 0
    selected = SparsePrecisionCV(selection="ebic", weights=weights, sparsities=5).fit(chain_samples(100))
    assert selected.precision_[0, 1] == 0


def test_verbose_prints_the_progress(capsys):
    SparsePrecisionCV(sparsities=4, verbose=True).fit(chain_samples(60))
    printed = capsys.readouterr().out
    assert "4 values of λ, best" in printed
    assert "duality gap" in printed


def test_selection_rejects_a_precomputed_covariance():
    with pytest.raises(ValueError, match="λ cannot be chosen without them"):
        SparsePrecisionCV(covariance="precomputed").fit(np.eye(4))


@pytest.mark.parametrize("selection", ["cv", "ebic", "stars"])
def test_a_small_memory_budget_changes_the_batches_and_not_the_result(selection, monkeypatch):
    x, sizes = np.random.default_rng(0).normal(size=(60, 12)), []
    solve = SparsePrecisionCV._solve
    monkeypatch.setattr(SparsePrecisionCV, "_solve", lambda self, c, lam: sizes.append(len(c)) or solve(self, c, lam))
    options = {"selection": selection, "sparsities": [0.5, 0.3, 0.2, 0.1], "n_subsamples": 6, "tol": 1e-9}
    large = SparsePrecisionCV(**options).fit(x)
    assert max(sizes) == {"cv": 20, "ebic": 4, "stars": 24}[selection]
    sizes.clear()
    small = SparsePrecisionCV(**options, max_memory=3 * 14 * 8 * 12**2).fit(x)
    assert max(sizes) == 3
    np.testing.assert_allclose(small.selection_curve_, large.selection_curve_, rtol=1e-6)
    np.testing.assert_allclose(small.precision_, large.precision_, rtol=1e-4, atol=1e-5)


def test_reweighting_counts_in_the_memory_budget(monkeypatch):
    x, sizes = np.random.default_rng(0).normal(size=(60, 12)), []
    solve = SparsePrecisionCV._solve
    monkeypatch.setattr(SparsePrecisionCV, "_solve", lambda self, c, lam: sizes.append(len(c)) or solve(self, c, lam))
    options = {"sparsities": [0.5, 0.3, 0.2, 0.1], "reweight": "mcp"}
    SparsePrecisionCV(**options, max_memory=3 * 14 * 8 * 12**2).fit(x)
    assert max(sizes) == 1


@pytest.mark.parametrize("selection", ["cv", "stars"])
@pytest.mark.parametrize("size", [12, 70])
def test_covariances_of_parts_are_kept_only_if_they_are_small(selection, size, monkeypatch):
    x, held = np.random.default_rng(0).normal(size=(60, size)), []
    options = {"selection": selection, "sparsities": [0.5, 0.3], "n_subsamples": 4, "tol": 1e-6}
    kept = SparsePrecisionCV(**options).fit(x)
    monkeypatch.setattr(parts, "KEPT_BYTES", 0)
    covariance = parts.PartCovariances._covariance
    monkeypatch.setattr(
        parts.PartCovariances, "_covariance", lambda self, i: held.append(self.kept) or covariance(self, i)
    )
    computed = SparsePrecisionCV(**options).fit(x)
    assert held == [None] * len(held) != []
    folds = len(computed.cv_results_) - 3 if selection == "cv" else 4
    assert len(held) <= folds * (1 + len(computed.sparsities_))
    np.testing.assert_array_equal(computed.selection_curve_, kept.selection_curve_)


def test_the_path_is_kept_sparse():
    x = np.random.default_rng(0).normal(size=(80, 60))
    model = SparsePrecisionCV(selection="ebic", sparsities=20, n_refinements=0, min_ratio=0.3, tol=1e-3).fit(x)
    assert model.precision_path_.shape == (20, 60, 60)
    assert len(pickle.dumps(model)) < 0.5 * model.precision_path_.nbytes


def test_a_second_fit_leaves_nothing_of_the_first():
    x = chain_samples(40, 4)
    model = SparsePrecisionCV(sparsities=3, n_refinements=0).fit(x)
    model.set_params(selection="ebic", reweight="mcp").fit(x)
    assert not hasattr(model, "cv_results_")
    assert not hasattr(model, "costs_")


def test_the_path_of_an_unfitted_model_is_refused():
    with pytest.raises(NotFittedError, match="SparsePrecisionCV instance is not fitted yet"):
        _ = SparsePrecisionCV().precision_path_
