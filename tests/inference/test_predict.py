"""Predictions of image files: file arguments, unreadable images, the network's probabilities."""

import shutil
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner

from isice.cli import app
from isice.inference.features_file import write_features
from isice.inference.predict import find_images, load_predictor, probabilities
from isice.inference.push import push_run
from isice.train import load_trained

from ..cli._invoke import invoke
from ..train._birds import CLASSES, COLOURS, make_run, make_untrained


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("prediction")
    make_run(place, "data.image_size=12")
    return place


@pytest.fixture(scope="module")
def predictor(folder):
    return load_predictor(folder / "run", device="cpu")


def plain(path, colour, size=(12, 12), mode="RGB"):
    Image.new("RGB", size, colour).convert(mode).save(path)
    return str(path)


def test_classes_are_recognised_whatever_size_and_kind_of_file(predictor, tmp_path):
    files, expected = [], []
    kinds = [("png", "RGB"), ("jpg", "RGB"), ("bmp", "RGB"), ("png", "RGBA"), ("gif", "P")]
    for number, ((suffix, mode), name, colour) in enumerate(zip(kinds, CLASSES, COLOURS, strict=True)):
        files.append(plain(tmp_path / f"{number}.{suffix}", colour, (40 + number, 23), mode))
        expected.append(name)
    found = list(predictor.predict(files, topk=2, batch_size=2))
    assert [one.image for one in found] == files
    assert [one.classes[0][0] for one in found] == expected
    assert all(len(one.classes) == 2 and one.classes[0][1] > one.classes[1][1] for one in found)


def test_probabilities_are_the_networks(folder, predictor, tmp_path):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "noise.png")
    normalised = (pixels / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    image = torch.from_numpy(normalised).permute(2, 0, 1)[None].float()
    with torch.no_grad():
        expected = load_trained(folder / "run").model(image).softmax(dim=1)[0]
    (one,) = predictor.predict([tmp_path / "noise.png"], topk=99)
    assert dict(one.classes) == pytest.approx(dict(zip(CLASSES, expected.tolist(), strict=True)), abs=1e-5)
    assert sum(probability for _, probability in one.classes) == pytest.approx(1)


def test_features_are_the_pooled_vectors(folder, predictor, tmp_path):
    files = [str(plain(tmp_path / f"{colour}.png", colour)) for colour in ("red", "blue")]
    vectors = predictor.features(files, batch_size=1)
    assert vectors.shape == (2, predictor.model.head_hidden_size)
    images = torch.stack([predictor.prepare(file) for file in files])
    torch.testing.assert_close(predictor.model.classifier(vectors), predictor.model(images))
    out = tmp_path / "vectors.npz"
    invoke("features", folder / "run", *files, "--out", out, "--device", "cpu")
    with np.load(out) as saved:
        assert saved["images"].tolist() == files
        np.testing.assert_allclose(saved["vectors"], vectors.numpy(), rtol=1e-5)


def test_features_go_to_a_parquet_file(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    vectors = np.arange(6, dtype=np.float32).reshape(2, 3)
    write_features(tmp_path / "new" / "birds.parquet", ["a.png", "b.png"], vectors)
    table = parquet.read_table(tmp_path / "new" / "birds.parquet").to_pydict()
    assert table == {"image": ["a.png", "b.png"], "vector": vectors.tolist()}


def test_features_file_that_cannot_be_written(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for name, message in (("birds.parquet", "pip install pyarrow"), ("birds.csv", "to end in .npz or .parquet")):
        arguments = ["features", str(folder / "run"), str(tmp_path), "--out", str(tmp_path / name)]
        done = CliRunner().invoke(app, arguments)
        assert message in str(done.exception), done.output
        assert not (tmp_path / name).exists()


def test_flip_averages_probabilities_not_logits():
    identity_model = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False))
    identity_model[1].weight.data = torch.eye(2)
    image = torch.tensor([0.0, 3.0]).reshape(1, 1, 1, 2)
    straight, mirrored = torch.tensor([0.0, 3.0]).softmax(0), torch.tensor([3.0, 0.0]).softmax(0)
    torch.testing.assert_close(probabilities(identity_model, image)[0], straight)
    torch.testing.assert_close(probabilities(identity_model, image, flip=True)[0], (straight + mirrored) / 2)
    uneven = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False))
    uneven[1].weight.data = torch.tensor([[1.0, 0.0], [0.0, 0.5]])
    expected = (torch.tensor([0.0, 1.5]).softmax(0) + torch.tensor([3.0, 0.0]).softmax(0)) / 2
    torch.testing.assert_close(probabilities(uneven, image, flip=True)[0], expected)


@pytest.mark.parametrize("batch_size", [1, 2, 32])
def test_bad_images_do_not_stop_the_others(predictor, tmp_path, batch_size):
    good = plain(tmp_path / "good.png", COLOURS[3])
    (tmp_path / "bad.png").write_bytes(b"no picture")
    empty = tmp_path / "empty.jpg"
    empty.write_bytes(b"")
    files = [str(tmp_path / "bad.png"), good, str(tmp_path / "none.png"), str(empty), good.replace("good", "also")]
    shutil.copy(good, files[-1])
    found = list(predictor.predict(files, batch_size=batch_size))
    assert [one.image for one in found] == files
    assert [one.error for one in found] == [
        "it cannot be read as an image",
        None,
        "there is no such file",
        "it cannot be read as an image",
        None,
    ]
    assert found[1].classes == found[4].classes
    assert found[0].to_dict() == {"image": files[0], "error": "it cannot be read as an image"}
    assert found[1].to_dict()["predictions"][0]["class"] == "robin"


def test_a_shared_model_predicts_like_its_run(folder, predictor, tmp_path):
    push_run(folder / "run", str(tmp_path / "shared"))
    file = plain(tmp_path / "a.png", COLOURS[1], (30, 20))
    again = load_predictor(f"local-dir:{tmp_path / 'shared'}", device="cpu")
    assert list(again.predict([file])) == list(predictor.predict([file]))


def test_grey_networks_take_colour_files(tmp_path):
    make_untrained(tmp_path / "run", "digits", in_chans=1, num_classes=10)
    file = plain(tmp_path / "a.png", (200, 200, 200), (30, 20))
    (one,) = load_predictor(tmp_path / "run", device="cpu").predict([file], topk=3)
    assert {name for name, _ in one.classes} <= set("0123456789")


class TestFindImages:
    def test_files_patterns_and_folders(self, tmp_path):
        for name in ("b.png", "a.JPG", "notes.txt", "deep/er/c.webp"):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        inside = [str(tmp_path / name) for name in ("a.JPG", "b.png", "deep/er/c.webp")]
        assert find_images([tmp_path]) == inside
        assert find_images([f"{tmp_path}/*.png"]) == inside[1:2]
        assert find_images([f"{tmp_path}/**/*.webp"]) == inside[2:]
        assert find_images([tmp_path / "b.png", tmp_path]) == [inside[1], inside[0], inside[2]]
        assert find_images([tmp_path / "notes.txt", "no/such.png"]) == [str(tmp_path / "notes.txt"), "no/such.png"]

    def test_a_name_with_brackets_is_a_file_if_there_is_one(self, tmp_path):
        (tmp_path / "x[1].png").touch()
        assert find_images([tmp_path / "x[1].png"]) == [str(tmp_path / "x[1].png")]

    def test_a_folder_without_images_is_an_error(self, tmp_path):
        with pytest.raises(ValueError, match="at least one image, got none"):
            find_images([])
        with pytest.raises(FileNotFoundError, match="expected images in"):
            find_images([tmp_path])
        with pytest.raises(FileNotFoundError, match=r"nowhere/\*\.png"):
            find_images(["nowhere/*.png"])


class TestErrors:
    def test_more_channels_than_image_files_have(self, tmp_path):
        make_untrained(tmp_path, "textures", in_chans=12, num_classes=4)
        with pytest.raises(ValueError, match="grey or RGB images, got one for 12 channels"):
            load_predictor(tmp_path)

    def test_bare_network(self, tmp_path):
        from isice import create_model

        create_model("small_cnn", pooling="gap", num_classes=3, reduce=4).save_pretrained(tmp_path)
        with pytest.raises(ValueError, match="to state its classes and input, got neither"):
            load_predictor(f"local-dir:{tmp_path}")

    def test_topk(self, predictor):
        with pytest.raises(ValueError, match="topk ≥ 1, got 0"):
            list(predictor.predict(["a.png"], topk=0))

    def test_missing_device(self, folder):
        if torch.cuda.is_available():
            pytest.skip("there is a GPU")
        with pytest.raises(ValueError, match="there is no CUDA"):
            load_predictor(folder / "run", device="cuda")
