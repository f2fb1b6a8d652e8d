"""Where the datasets of a sweep are looked for, and what is said about those that are missing."""

import pytest

from isice.experiments.loader import load_experiment
from isice.jobs.roots import check_data, missing_data, with_roots

CELLS = load_experiment("table3").cells()


def of(cells, name):
    return next(cell for cell in cells if cell.config.data.name == name)


def test_every_dataset_has_a_folder_of_its_name(tmp_path):
    (tmp_path / "cub200").mkdir()
    placed = with_roots(CELLS, tmp_path)
    assert {cell.config.data.root for cell in placed} == {
        str(tmp_path / name) for name in ("mit_indoor67", "aircraft", "cub200", "cars")
    }
    assert [cell.hash for cell in placed] == [cell.hash for cell in CELLS]
    assert missing_data(of(placed, "cub200")) is None
    assert missing_data(of(placed, "cars")) == f"{tmp_path / 'cars'} does not exist"


def test_a_root_of_its_own_comes_first(tmp_path):
    cells = load_experiment("table3").with_settings([f"data.root={tmp_path}"]).cells()
    assert {cell.config.data.root for cell in with_roots(cells, "elsewhere")} == {str(tmp_path)}
    check_data(cells)


def test_a_download_needs_a_name_and_no_folder():
    cells = load_experiment("table3").with_settings(["data.download=true"]).cells()
    assert missing_data(of(cells, "aircraft")) == "no folder given"
    assert missing_data(of(with_roots(cells, "nowhere"), "aircraft")) is None


def test_one_error_for_all(tmp_path):
    (tmp_path / "cub200").mkdir()
    with pytest.raises(
        FileNotFoundError, match=r"mit_indoor67 \(.*\), aircraft \(.*\), cars \(.*\); give --data-root"
    ) as found:
        check_data(with_roots(CELLS, tmp_path))
    assert "cub200" not in str(found.value)


@pytest.mark.parametrize("name", ["demo", "figure3", "table6"])
def test_nothing_is_missing_where_no_files_are_needed(name):
    check_data(with_roots(load_experiment(name).cells(), None))
