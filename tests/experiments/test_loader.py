"""Experiment files: every shipped one loads; expansion, overrides and errors."""

import pytest

from isice.config import config_hash
from isice.experiments.loader import list_experiments, load_experiment, load_recipe

GRID = """
[experiment]
title = "t"
seeds = [0, 3]
[config]
optim.epochs = 2
[grid]
model.pooling = ["gap", "isice(n_iter=3)"]
optim.lr = [0.1, 0.2]
"""


@pytest.fixture
def grid(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(GRID)
    return load_experiment(path)


@pytest.mark.parametrize("name", list_experiments())
def test_every_shipped_experiment_expands(name):
    cells = load_experiment(name).cells()
    assert cells
    assert len({cell.name for cell in cells}) == len({config_hash(cell.config) for cell in cells}) == len(cells)


def test_the_digits_are_an_ordinary_experiment():
    cells = load_experiment("digits").cells()
    assert [cell.config.model.pooling for cell in cells] == ["gap", "isqrt_cov", "precision", "isice"]
    assert all(cell.config.data.val_fraction > 0 for cell in cells)


def test_expansion_is_the_product_in_the_order_of_the_file(grid):
    found = [(c.config.model.pooling, c.config.optim.lr, c.config.seed) for c in grid.cells()]
    poolings, rates, seeds = ("gap", "isice(n_iter=3)"), (0.1, 0.2), (0, 3)
    assert found == [(p, r, s) for p in poolings for r in rates for s in seeds]
    assert all(cell.config.optim.epochs == 2 for cell in grid.cells())
    assert grid.cells()[-1].label == "isice(n_iter=3) 0.2 seed 3"


def test_names_are_plain_folder_names(grid):
    for cell in grid.cells():
        assert cell.name.replace("-", "").replace("_", "").replace(".", "").isalnum()


def test_set_fixes_an_axis_and_seeds_replace(grid):
    fixed = grid.with_settings(["model.pooling=covariance", "optim.epochs=7"], seeds=[5])
    assert [(c.config.model.pooling, c.config.optim.lr, c.config.seed) for c in fixed.cells()] == [
        ("covariance", 0.1, 5),
        ("covariance", 0.2, 5),
    ]
    assert fixed.cells()[0].config.optim.epochs == 7
    assert {c.config.seed for c in grid.with_settings(["seed=9"]).cells()} == {9}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[experimnt]\ntitle = 'x'", "experimnt: unknown key.*Did you mean 'experiment'"),
        ("[experiment]\ntitel = 'x'", r"experiment\.titel: unknown key.*Did you mean 'title'"),
        ("[config]\noptim.lrr = 1", "unknown key 'optim.lrr'"),
        ("[grid]\nmodel.poling = ['gap']", "unknown key 'model.poling'.*Did you mean 'model.pooling'"),
        ("[grid]\nmodel.pooling = 'gap'", "grid.model.pooling to be a list"),
        ("[grid]\nmodel.pooling = []", "grid.model.pooling to be a list"),
        ("[grid]\nseed = [1, 2]", "expected seeds under"),
        ("[grid]\noptim.epochs = [1, 'two']", "'optim.epochs' to be of type int"),
        ("[experiment]\nseeds = [1, 1]", "distinct integers"),
        ("[experiment]\nseeds = [-1]", "every seed ≥ 0"),
        ("[experiment]\nrecipe = 'smal'", "expected a .toml file or one of .*small.* Did you mean 'small'"),
    ],
)
def test_mistakes_in_a_file_are_found_when_it_is_loaded(tmp_path, text, message):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises((ValueError, TypeError, FileNotFoundError), match=message):
        load_experiment(path)


def test_unknown_experiment_suggests():
    with pytest.raises(FileNotFoundError, match="Did you mean 'digits'"):
        load_experiment("digitss")


def test_recipe_from_a_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[optim]\nlr = 0.5\n")
    assert load_recipe(path).optim.lr == 0.5


def test_a_grid_of_a_hundred_million_cells_is_refused_at_once(tmp_path):
    values = ", ".join(str(0.001 * number) for number in range(1, 101))
    path = tmp_path / "huge.toml"
    lines = ["lr", "weight_decay", "momentum", "gamma"]
    path.write_text("[grid]\n" + "".join(f"optim.{name} = [{values}]\n" for name in lines))
    with pytest.raises(ValueError, match=r"huge: expected at most 100,000 runs, got 100,000,000 combinations"):
        load_experiment(path)
