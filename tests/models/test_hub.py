"""Sharing: what is saved is what is read, locally or from the Hub; the rest is left to timm."""

import copy
import json
import shutil

import pytest
import timm
import torch
from huggingface_hub import ModelHubMixin
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

import isice
from isice.models import hub

ABOUT = {
    "classes": ["crow", "wren"],
    "input": {"image_size": 8, "channels": 3, "transform": "paper", "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.2, 0.1]},
    "training": {
        "data": "birds",
        "images": {"train": 1200, "test": 40},
        "accuracy": {"test": 0.875},
        "epoch": 7,
        "chosen_on": "the validation part",
        "seed": 3,
        "precision": "fp32",
        "hardware": "a CPU",
        "commit": "abcdef123456",
        "versions": {"isice": "0.1.0"},
        "hash": "0123456789ab",
    },
}


def make(pooling="isice(n_iter=2)", **options):
    torch.manual_seed(0)
    model = isice.create_model("small_cnn", pooling=pooling, num_classes=2, reduce=4, widths=(6,), **options)
    model(torch.rand(8, 3, 8, 8))  # moves the BatchNorm statistics away from their start
    return model.eval()


@pytest.fixture
def shared(tmp_path):
    model = make()
    model.about = copy.deepcopy(ABOUT)
    model.save_pretrained(tmp_path / "shared")
    return model, tmp_path / "shared"


def edit(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes), encoding="utf-8")


@pytest.mark.parametrize("prefix", ["local-dir:", ""])
def test_round_trip_through_a_folder(shared, prefix):
    model, folder = shared
    again = isice.create_model(f"{prefix}{folder}")
    images = torch.rand(3, 3, 8, 8)
    assert torch.equal(again(images), model(images))
    assert not again.training
    assert again.config == model.config
    assert again.about == ABOUT
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]


def test_network_is_a_hub_mixin(shared):
    model, folder = shared
    assert isinstance(model, ModelHubMixin)
    images = torch.rand(1, 3, 8, 8)
    assert torch.equal(isice.Network.from_pretrained(folder)(images), model(images))


@pytest.mark.parametrize(
    ("name", "options"),
    [("test_resnet", {}), ("test_vit", {"img_size": (32, 48)}), ("small_cnn", {"in_chans": 1, "widths": (5, 6)})],
)
def test_every_kind_of_backbone_comes_back(tmp_path, name, options):
    model = isice.create_model(name, pooling="low_rank_bilinear", num_classes=3, reduce=None, **options).eval()
    model.save_pretrained(tmp_path)
    images = torch.rand(2, options.get("in_chans", 3), 32, 48)
    assert torch.equal(isice.create_model(f"local-dir:{tmp_path}")(images), model(images))


def test_the_card_says_what_is_recorded(shared):
    text = (shared[1] / "README.md").read_text(encoding="utf-8")
    assert "library_name: isice" in text
    for fact in ("87.50%", "birds", "train 1,200", "| seed | 3 |", "abcdef123456", "the validation part", "8×8"):
        assert fact in text
    assert "minus (0.5, 0.4, 0.3), divided by (0.2, 0.2, 0.1)" in text


def test_the_card_claims_nothing_that_is_not_recorded(tmp_path):
    make().save_pretrained(tmp_path)
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "Nothing is recorded about where the weights come from." in text
    assert "accuracy" not in text


def test_facts_may_be_incomplete(tmp_path):
    model = isice.create_model("small_cnn", pooling="gap", num_classes=2, in_chans=1)
    model.about = {"training": {"data": "mine"}, "input": {"image_size": 8}}
    model.save_pretrained(tmp_path / "model")
    assert "| seed | not recorded |" in (tmp_path / "model" / "README.md").read_text()
    found = isice.create_model(f"{tmp_path}/model").pretrained_cfg
    assert (found["input_size"], found["mean"], found["std"]) == ((1, 8, 8), (0.0,), (1.0,))


def test_push_uploads_the_same_files(shared, monkeypatch):
    model, folder = shared
    uploaded = {}

    class Api:
        def __init__(self, **_):
            pass

        def create_repo(self, repo_id, **options):
            uploaded["private"] = options["private"]
            return type("Repo", (), {"repo_id": repo_id})

        def upload_folder(self, *, repo_id, folder_path, **_):
            uploaded.update({path.name: path.read_bytes() for path in folder_path.iterdir()})
            return f"commit in {repo_id}"

    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", Api)
    assert model.push_to_hub("owner/birds", private=True) == "commit in owner/birds"
    assert uploaded.pop("private") is True
    for name in ("config.json", "model.safetensors"):
        assert uploaded[name] == (folder / name).read_bytes()


def repository(monkeypatch, folder, asked):
    """Serve a folder as if it were a repository."""

    def download(repo_id, filename=None, *, revision=None, **_):
        asked.append((repo_id, filename, revision))
        if not (folder / filename).is_file():
            raise EntryNotFoundError(f"no {filename}")
        return str(folder / filename)

    monkeypatch.setattr(hub, "hf_hub_download", download)
    monkeypatch.setattr("huggingface_hub.hub_mixin.hf_hub_download", download)


def test_from_a_repository_with_revision(shared, monkeypatch):
    model, folder = shared
    asked = []
    repository(monkeypatch, folder, asked)
    images = torch.rand(2, 3, 8, 8)
    assert torch.equal(isice.create_model("hf-hub:owner/birds@v2")(images), model(images))
    assert ("owner/birds", "model.safetensors", "v2") in asked
    assert {(repo, revision) for repo, _, revision in asked} == {("owner/birds", "v2")}


def test_a_repository_of_timm_is_a_backbone(tmp_path, monkeypatch):
    config = {"architecture": "test_resnet", "num_classes": 1000, "pretrained_cfg": {"input_size": [3, 160, 160]}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    repository(monkeypatch, tmp_path, [])
    monkeypatch.setattr("timm.models._factory.load_model_config_from_hf", lambda *_, **__: ({}, "test_resnet", {}))
    model = isice.create_model("hf-hub:timm/test_resnet", pooling="gap", num_classes=4, reduce=8)
    assert model(torch.rand(1, 3, 64, 64)).shape == (1, 4)


def test_a_folder_of_timm_is_a_backbone(tmp_path):
    backbone = timm.create_model("test_resnet")
    timm.models.save_for_hf(backbone, tmp_path)
    model = isice.create_model(f"local-dir:{tmp_path}", pooling="gap", num_classes=4, reduce=8)
    assert model(torch.rand(1, 3, 64, 64)).shape == (1, 4)


def test_no_network_is_an_error_that_says_what_to_do(monkeypatch):
    def download(*_, **__):
        raise LocalEntryNotFoundError("no\nconnection")

    monkeypatch.setattr(hub, "hf_hub_download", download)
    with pytest.raises(
        OSError, match=r"'owner/birds', but it could not be downloaded \(Local.*: no connection\).*local-dir"
    ):
        isice.create_model("hf-hub:owner/birds")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 7}, "with num_classes=2, got num_classes=7"),
        ({"pooling": "gap"}, "got pooling='gap'"),
        ({"checkpoint_path": "x.pth"}, "got checkpoint_path='x.pth'"),
    ],
)
def test_a_shared_network_is_taken_as_it_is(shared, options, message):
    with pytest.raises(ValueError, match=message):
        isice.create_model(f"local-dir:{shared[1]}", **options)
    assert isice.create_model(f"local-dir:{shared[1]}", num_classes=2).num_classes == 2
    assert isice.attach(isice.create_model(f"local-dir:{shared[1]}"), "gap", num_classes=7, reduce=4).num_classes == 7


class TestErrors:
    def test_missing_folder(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"expected a folder at .*nowhere"):
            isice.create_model(f"local-dir:{tmp_path}/nowhere")

    def test_run_folder(self, tmp_path):
        (tmp_path / "checkpoints").mkdir()
        with pytest.raises(FileNotFoundError, match="this is a run folder: share it with isice push"):
            isice.create_model(str(tmp_path))

    def test_folder_without_config(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="not the folder of a shared model"):
            isice.create_model(str(tmp_path))

    def test_config_that_is_no_json(self, shared):
        (shared[1] / "config.json").write_text("{")
        with pytest.raises(ValueError, match="expected JSON in"):
            isice.create_model(str(shared[1]))

    def test_format_of_another_version(self, shared):
        edit(shared[1], schema=99, isice_version="9.9")
        with pytest.raises(ValueError, match=r"format 1 in .*, got 99; use isice 9\.9"):
            isice.create_model(str(shared[1]))

    def test_missing_weights(self, shared):
        (shared[1] / "model.safetensors").unlink()
        with pytest.raises(FileNotFoundError, match=r"expected model.safetensors in"):
            isice.create_model(str(shared[1]))

    def test_weights_of_another_network(self, shared, tmp_path):
        other = isice.create_model("small_cnn", pooling="gap", num_classes=9, reduce=4, widths=(6,))
        other.save_pretrained(tmp_path / "other")
        shutil.copy(tmp_path / "other" / "model.safetensors", shared[1])
        with pytest.raises(ValueError, match=r"expected weights that fit the network .* size mismatch"):
            isice.create_model(str(shared[1]))

    def test_another_library(self, shared):
        edit(shared[1], library_name="else")
        with pytest.raises(ValueError, match="expected a model shared by isice"):
            isice.Network.from_pretrained(shared[1])

    def test_num_classes_is_needed_for_a_backbone(self):
        with pytest.raises(TypeError, match="expected num_classes to be an integer, got None"):
            isice.create_model("small_cnn")
