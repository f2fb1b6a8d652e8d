"""Experiments that are too large to plan."""

import pytest

from isice.experiments.loader import load_experiment


def test_a_grid_of_a_hundred_million_cells_is_refused_at_once(tmp_path):
    values = ", ".join(str(0.001 * number) for number in range(1, 101))
    path = tmp_path / "huge.toml"
    lines = ["lr", "weight_decay", "momentum", "gamma"]
    path.write_text("[grid]\n" + "".join(f"optim.{name} = [{values}]\n" for name in lines))
    with pytest.raises(ValueError, match=r"huge: expected at most 100,000 runs, got 100,000,000 combinations"):
        load_experiment(path)
