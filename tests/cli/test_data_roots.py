"""The data folders of a sweep and the errors about missing datasets."""

import pytest
from PIL import Image

from isice.cli._data_roots import check_data, missing_data, with_roots
from isice.experiments.loader import load_experiment

CELLS = load_experiment("table3").cells()
NAMES = ("mit_indoor67", "aircraft", "cub200", "cars")


@pytest.fixture
def mine(tmp_path):
    """An experiment on two folders of images, of which the first is there."""
    for name in ("train/a", "train/b", "test/a", "test/b"):
        (tmp_path / "one" / name).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(tmp_path / "one" / name / "0.png")
    path = tmp_path / "mine.toml"
    path.write_text(
        "[config]\ndata.name = 'folder'\n[axes.where]\n"
        f"one = {{ data.root = '{tmp_path / 'one'}', data.split_seed = 1 }}\n"
        f"two = {{ data.root = '{tmp_path / 'two'}', data.split_seed = 2 }}\n"
    )
    return load_experiment(path).cells()


def test_every_dataset_has_a_folder_of_its_name(tmp_path):
    placed = with_roots(CELLS, tmp_path)
    assert {cell.config.data.root for cell in placed} == {str(tmp_path / name) for name in NAMES}
    assert [cell.hash for cell in placed] == [cell.hash for cell in CELLS]
    assert missing_data(placed) == {(n, str(tmp_path / n)): f"{tmp_path / n} does not exist" for n in NAMES}


def test_a_root_of_its_own_comes_first():
    cells = load_experiment("table3").with_settings(["data.root=here"]).cells()
    assert {cell.config.data.root for cell in with_roots(cells, "elsewhere")} == {"here"}


def test_files_are_looked_for(mine, tmp_path):
    two = tmp_path / "two"
    assert missing_data(mine) == {("folder", str(two)): f"{two} does not exist"}
    check_data(mine[:1])
    (two / "train").mkdir(parents=True)
    ((place, reason),) = missing_data(mine).items()
    assert place == ("folder", str(two))
    assert "expected a folder 'test' or 'val' beside 'train'" in reason


def test_an_incomplete_dataset_is_noticed_before_anything_runs(tmp_path):
    for name in ("train/001.Heron", "test/001.Heron"):
        (tmp_path / "cub200" / name).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(tmp_path / "cub200" / name / "0.jpg")
    cells = with_roots([cell for cell in CELLS if cell.at["dataset"] == "cub200"], tmp_path)
    ((_, reason),) = missing_data(cells).items()
    assert "expected 200 classes in 'cub200', got 1" in reason
    counted = [cell for cell in load_experiment("table6").cells() if cell.at["dataset"] == "cub200"]
    assert missing_data(with_roots(counted, tmp_path)) == {}


def test_a_download_needs_a_name_and_no_folder():
    cells = load_experiment("table3").with_settings(["data.download=true"]).cells()
    assert missing_data(cells)["aircraft", None] == "no folder given"
    assert missing_data(with_roots(cells, "nowhere")) == {}


def test_one_error_for_all():
    message = (
        r"missing: mit_indoor67 \(no folder given\), aircraft \(.*\), cub200 \(.*\), cars \(.*\); give --data-root"
    )
    with pytest.raises(FileNotFoundError, match=message):
        check_data(CELLS)


@pytest.mark.parametrize("name", ["digits", "figure3"])
def test_nothing_is_missing_where_no_files_are_needed(name):
    check_data(with_roots(load_experiment(name).cells(), None))
