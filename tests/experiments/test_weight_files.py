"""Weight files: found by backbone, identified by content, checked before anything runs."""

import hashlib

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from isice.cli import app
from isice.config import RunConfig, config_hash, override
from isice.experiments.loader import load_experiment
from isice.experiments.plan import select_cells
from isice.experiments.weight_files import content_hash, find_all, find_weights, with_weights

PRETRAINED = override(RunConfig(), ["model.backbone=vgg16", "model.pretrained=true"])


def weights(folder, name="vgg16.safetensors", value=1.0):
    folder.mkdir(exist_ok=True)
    save_file({"x": torch.full((2,), value)}, folder / name)
    return folder


def test_the_hash_is_that_of_the_content_and_not_of_the_path(tmp_path):
    one, same, other = (weights(tmp_path / name, value=value) for name, value in (("a", 1), ("b", 1), ("c", 2)))
    hashes = [config_hash(with_weights(PRETRAINED, find_all(root, [PRETRAINED]))) for root in (one, same, other)]
    assert hashes[0] == hashes[1] != hashes[2]
    assert config_hash(PRETRAINED) not in hashes


def test_a_config_without_a_file_keeps_its_hash():
    assert config_hash(with_weights(PRETRAINED, {})) == config_hash(PRETRAINED)
    assert config_hash(RunConfig()) == "785663b686fb"


def test_a_tag_is_allowed_and_two_files_are_not(tmp_path):
    weights(tmp_path, "vgg16.tv_in1k.safetensors")
    weights(tmp_path, "vgg16_bn.safetensors")
    assert find_weights(tmp_path, "vgg16").name == "vgg16.tv_in1k.safetensors"
    weights(tmp_path)
    with pytest.raises(ValueError, match="expected one file for 'vgg16'"):
        find_weights(tmp_path, "vgg16")


def test_missing_files_are_named_together(tmp_path):
    resnet = override(PRETRAINED, ["model.backbone=resnet50"])
    with pytest.raises(FileNotFoundError, match="missing: resnet50, vgg16"):
        find_all(tmp_path, [PRETRAINED, resnet, RunConfig()])


def test_what_was_found_in_place_of_a_missing_file_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing: vgg16; there is no such folder; name a file vgg16\.safe"):
        find_all(tmp_path / "nothing", [PRETRAINED])
    with pytest.raises(FileNotFoundError, match="got no weight files"):
        find_all(tmp_path, [PRETRAINED])
    weights(tmp_path, "vgg16_features_fp16.safetensors")
    with pytest.raises(FileNotFoundError, match=r"got vgg16_features_fp16\.safetensors; name a file vgg16\."):
        find_all(tmp_path, [PRETRAINED])
    with pytest.raises(FileNotFoundError, match="that is a file"):
        find_all(tmp_path / "vgg16_features_fp16.safetensors", [PRETRAINED])


def test_a_given_file_is_checked_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "damaged.pth").write_bytes(b"\x80\x02h\x05.")
    for name, message in (("none.pth", "there is no such file"), ("damaged.pth", "expected a readable file")):
        settings = ["run", "digits", "--dry-run", "--set", f"model.checkpoint_path={name}"]
        result = CliRunner().invoke(app, settings)
        assert isinstance(result.exception, FileNotFoundError | ValueError)
        assert message in str(result.exception)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("vgg16.safetensors", b"not a header"),
        ("vgg16.pth", b""),
        ("vgg16.pth", b"\x80\x02h\x05."),
        ("vgg16.bin", b"<html>Not found</html>"),
        ("vgg16.bin", b"junk\n"),  # KeyError(174812789)
    ],
)
def test_an_unreadable_file_is_named_before_anything_runs(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"expected a readable file {name}, got \w+Error: "):
        find_all(tmp_path, [PRETRAINED])


def test_the_cells_of_a_table_take_the_file_of_their_backbone(tmp_path, monkeypatch):
    weights(tmp_path)
    digest, reads = hashlib.file_digest, []
    monkeypatch.setattr(hashlib, "file_digest", lambda *args: reads.append(args) or digest(*args))
    table = load_experiment("table1")
    cells = select_cells(table, ["backbone=vgg16", "dataset=cub200"])
    found = select_cells(table.with_weights_from(tmp_path, cells), ["backbone=vgg16", "dataset=cub200"])
    assert {cell.config.model.weights for cell in found} == {content_hash(tmp_path / "vgg16.safetensors")}
    assert {cell.hash for cell in found}.isdisjoint(cell.hash for cell in cells)
    assert len(found) == 19
    assert len(reads) == 1


def test_a_named_file_identifies_a_run_by_its_content_without_a_folder_of_weights(tmp_path):
    paths = [
        weights(tmp_path / name, value=value) / "vgg16.safetensors" for name, value in (("a", 1), ("b", 1), ("c", 2))
    ]
    demo = load_experiment("digits")
    tables = [demo.with_settings([f"model.checkpoint_path={path}"]) for path in paths]
    hashes = [[cell.hash for cell in table.with_weights_from(None, table.cells()).cells()] for table in tables]
    assert hashes[0] == hashes[1]
    assert set(hashes[0]).isdisjoint(hashes[2])
    assert tables[0].cells()[0].config.model.weights == content_hash(paths[0])


def test_a_run_refuses_a_file_that_changed(tmp_path):
    from isice.data import load_splits
    from isice.train.run import build_model

    weights(tmp_path)
    config = with_weights(PRETRAINED, find_all(tmp_path, [PRETRAINED]))
    weights(tmp_path, value=3.0)
    with pytest.raises(ValueError, match="expected weights with the SHA-256"):
        build_model(config, load_splits(RunConfig().data))


def test_only_runs_with_a_published_number_by_default():
    table = load_experiment("table1")
    assert (len(select_cells(table)), len(select_cells(table, published=True))) == (900, 596)
    nine = load_experiment("table9")
    assert len(select_cells(nine)) - len(select_cells(nine, published=True)) == 8  # N = 1
    assert len(select_cells(load_experiment("memory"), published=True)) == 4
