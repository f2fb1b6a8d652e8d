"""Files that describe a network cannot choose other files, addresses or code."""

import json
import os

import pytest
import timm
import torch

import isice
from isice.config import RunConfig
from isice.models.saved_arguments import check_arguments
from isice.train import load_trained
from isice.train.checkpoint import save_checkpoint

NETWORK = {"name": "test_resnet", "in_chans": 3, "img_size": None, "pooling": "gap", "num_classes": 2, "reduce": 4}


class Payload:
    """A pickle that makes a folder when it is executed."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.fixture
def bait(tmp_path):
    """A weight file that leaves a trace if its pickle is executed."""
    torch.save({"state_dict": Payload(tmp_path / "executed")}, tmp_path / "bait.pth")
    return tmp_path / "bait.pth"


def attacks(bait):
    return [
        {"checkpoint_path": str(bait)},
        {"pretrained": True},
        {"pretrained": True, "pretrained_cfg": {"file": str(bait)}},
        {"pretrained": True, "pretrained_cfg": {"url": "https://attacker.invalid/weights.pth"}},
        {"pretrained_cfg": {"url": "https://attacker.invalid/weights.pth"}},
        {"pretrained_cfg_overlay": {"file": str(bait)}},
        {"cache_dir": str(bait.parent)},
        {"features_only": True},
        {"scriptable": True},
        {"name": "hf-hub:attacker/model"},
        {"name": f"local-dir:{bait.parent}"},
        {"name": f"{bait.parent}"},
        {"name": "./folder"},
        {"name": ["test_resnet"]},
        {"num_classes": "2"},
        {"num_classes": 10**12},
        {"reduce": 2.5},
        {"reduce": True},
        {"in_chans": -1},
        {"img_size": [32, 32, 32]},
        {"drop_rate": float("nan")},
        {"act_layer": "os.system"},
        {"act_layer": {"file": "x"}},
        {"pooling": 3},
    ]


@pytest.fixture(params=range(24))
def attack(request, bait, monkeypatch):
    """One hostile network; nothing may be opened, downloaded or executed."""

    def refuse(*args, **_):
        raise AssertionError(f"opened {args}")

    for name in ("_factory.load_checkpoint", "_factory.load_model_config_from_hf", "_builder.load_state_dict_from_hf"):
        monkeypatch.setattr(f"timm.models.{name}", refuse)
    monkeypatch.setattr("timm.models._builder.load_state_dict", refuse)
    monkeypatch.setattr("timm.models._builder.load_state_dict_from_url", refuse)
    monkeypatch.setattr("isice.models.hub.hf_hub_download", refuse)
    yield NETWORK | attacks(bait)[request.param]
    assert not (bait.parent / "executed").exists()


def test_every_attack_is_listed(bait):
    assert len(attacks(bait)) == 24


def refused():
    return pytest.raises(ValueError, match="a file may not")


def test_config_of_a_shared_folder(attack, tmp_path):
    model = isice.create_model("small_cnn", pooling="gap", num_classes=2, reduce=4)
    model.save_pretrained(tmp_path / "shared")
    path = tmp_path / "shared" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"network": attack}))
    with refused():
        isice.create_model(f"local-dir:{tmp_path / 'shared'}")
    with refused():
        isice.Network.from_pretrained(tmp_path / "shared")


def test_meta_of_a_run(attack, tmp_path):
    model = isice.create_model("small_cnn", pooling="gap", num_classes=2, reduce=4)
    place = save_checkpoint(
        tmp_path, "best", config=RunConfig(), classes=("a", "b"), model=model, epoch=1, step=0, state=None
    )
    path = place / "meta.json"
    meta = json.loads(path.read_text())
    del meta["sha256"], meta["data"]  # as an attacker, or an earlier version, would write it
    path.write_text(json.dumps(meta | {"network": attack}))
    with refused():
        load_trained(tmp_path)


@pytest.mark.parametrize("arguments", [{"checkpoint_path": "x.pth"}, {"pretrained_cfg": {"file": "x"}}, {"name": "x"}])
def test_config_of_timm(tmp_path, arguments):
    timm.models.save_for_hf(timm.create_model("test_resnet"), tmp_path, model_args=arguments)
    with refused():
        isice.create_model(f"local-dir:{tmp_path}", pooling="gap", num_classes=2, reduce=4)


@pytest.mark.parametrize("architecture", ["hf-hub:attacker/model", "local-dir:{}", "{}", "test_resnet/../x", 3])
def test_architecture_in_a_config_of_timm(tmp_path, architecture, monkeypatch):
    monkeypatch.setattr("isice.models.hub.hf_hub_download", lambda *_, **__: pytest.fail("a download was started"))
    timm.models.save_for_hf(timm.create_model("test_resnet"), tmp_path / "shared")
    timm.models.save_for_hf(timm.create_model("test_vit"), tmp_path / "other")
    path = tmp_path / "shared" / "config.json"
    named = architecture.format(tmp_path / "other") if isinstance(architecture, str) else architecture
    path.write_text(json.dumps(json.loads(path.read_text()) | {"architecture": named}))
    with refused():
        isice.create_model(f"local-dir:{tmp_path / 'shared'}", pooling="gap", num_classes=2, reduce=4)


@pytest.mark.parametrize("key", ["file", "url", "hf_hub_id"])
def test_weights_named_in_a_config_of_timm(tmp_path, bait, key, monkeypatch):
    def refuse(*args, **_):
        raise AssertionError(f"opened {args}")

    for name in ("load_state_dict_from_url", "load_state_dict_from_hf", "load_custom_from_hf"):
        monkeypatch.setattr(f"timm.models._builder.{name}", refuse)
    backbone = timm.create_model("test_resnet")
    timm.models.save_for_hf(backbone, tmp_path / "shared")
    path = tmp_path / "shared" / "config.json"
    config = json.loads(path.read_text())
    config["pretrained_cfg"] |= {key: str(bait), "source": "", "custom_load": False}
    path.write_text(json.dumps(config))
    model = isice.create_model(
        f"local-dir:{tmp_path / 'shared'}", pooling="gap", num_classes=2, reduce=4, pretrained=True
    )
    assert torch.equal(next(model.backbone.parameters()), next(backbone.parameters()))
    assert not (bait.parent / "executed").exists()


def test_backbone_with_a_source_is_saved_by_its_architecture(tmp_path):
    timm.models.save_for_hf(timm.create_model("test_resnet"), tmp_path / "timm", model_args={"drop_rate": 0.1})
    model = isice.create_model(f"local-dir:{tmp_path / 'timm'}", pooling="gap", num_classes=2, reduce=4).eval()
    assert (model.config["name"], model.config["drop_rate"]) == ("test_resnet", 0.1)
    model.save_pretrained(tmp_path / "shared")
    again = isice.create_model(f"local-dir:{tmp_path / 'shared'}")
    images = torch.rand(1, 3, 64, 64)
    assert torch.equal(again(images), model(images))


@pytest.mark.parametrize("missing", ["name", "pooling", "num_classes", "reduce", "in_chans"])
def test_missing_argument(missing):
    with pytest.raises(ValueError, match=f"got none of {missing}; the file is damaged"):
        check_arguments({key: value for key, value in NETWORK.items() if key != missing}, "there")


@pytest.mark.parametrize("value", [None, [], "small_cnn", 3])
def test_not_a_table(value):
    with pytest.raises(ValueError, match="expected the arguments of a network in 'there'"):
        check_arguments(value, "there")


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_weights_with_code_are_not_executed(bait, suffix):
    path = bait.rename(bait.with_suffix(suffix))
    with pytest.raises(ValueError, match="load_weights: expected"):
        isice.create_model("small_cnn", pooling="gap", num_classes=2, reduce=4, checkpoint_path=path)
    assert not (bait.parent / "executed").exists()
