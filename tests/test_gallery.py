"""Gallery: every example draws its figure and has its text and picture on the page."""

import importlib.util
from pathlib import Path
from types import ModuleType

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
from PIL import Image

mpl.use("Agg")
ROOT = Path(__file__).parents[1]
NAMES = sorted(path.stem.removeprefix("plot_") for path in (ROOT / "examples").glob("plot_*.py"))

# Smaller settings for examples that train or fit many models.
SMALLER = {
    "heat_maps": {"SIDE": 128, "CROP": 96, "N_CROPS": 4, "STEPS": 2, "CHANNELS": 4},
    "output_scale": {"EPOCHS": 1, "N_TRAIN": 128, "N_TEST": 64, "CHANNELS": (8, 16)},
    "structure_estimation": {"SAMPLES": (60, 120), "SEEDS": (0,), "SIZE": 20},
    "what_heads_see": {"SEEDS": (0,), "N_TEST": 80},
}


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    return load(ROOT / "docs" / "generate_gallery.py")


@pytest.mark.parametrize("name", NAMES)
def test_every_example_draws_its_picture(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = load(ROOT / "examples" / f"plot_{name}.py")
    for constant, value in SMALLER.get(name, {}).items():
        assert hasattr(example, constant)
        setattr(example, constant, value)
    look = dict(mpl.rcParams)
    try:
        example.main(str(tmp_path / "figure.png"))
    finally:
        plt.close("all")
    with Image.open(tmp_path / "figure.png") as picture:
        assert min(picture.size) > 250
        assert len(picture.convert("RGB").getcolors(maxcolors=10**6)) > 20
    assert [path.name for path in tmp_path.iterdir()] == ["figure.png"]
    assert dict(mpl.rcParams) == look


@pytest.mark.parametrize("name", NAMES)
def test_every_example_has_its_essay_and_a_small_picture(name, generator):
    title, text = generator.essay(name)
    assert 15 < len(title) < 100
    assert not title.endswith(".")
    assert len(text.split()) > 40
    assert "Usage" not in text
    size = (generator.PICTURES / f"{name}.png").stat().st_size
    assert 5_000 < size <= generator.MAX_BYTES
    assert f"Usage: python examples/plot_{name}.py [figure.png]" in generator.script(name).read_text(encoding="utf-8")


def test_the_pictures_are_those_of_the_examples(generator):
    assert sorted(path.stem for path in generator.PICTURES.iterdir()) == NAMES
    assert sorted(generator.examples()) == NAMES


def test_a_picture_of_pretrained_features_is_kept_without_weights(generator, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(generator, "PICTURES", tmp_path)
    monkeypatch.setenv("ISICE_WEIGHTS", str(tmp_path))
    assert generator.draw("heat_maps")
    assert "kept docs/gallery/heat_maps.png" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_shrinking_keeps_every_pixel(generator, tmp_path):
    picture = Image.radial_gradient("L").convert("RGBA")
    picture.save(tmp_path / "a.png", compress_level=0)
    before = (tmp_path / "a.png").stat().st_size
    generator.shrink(tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size < before / 2
    with Image.open(tmp_path / "a.png") as small:
        assert small.mode == "RGB"
        assert small.tobytes() == picture.convert("RGB").tobytes()
