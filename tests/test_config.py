"""Configs: TOML round trip, overrides, and errors that name the key."""

import dataclasses
import json
import warnings
from pathlib import Path

import pytest

from isice.config import (
    RunConfig,
    config_hash,
    from_dict,
    load_config,
    override,
    read_toml,
    set_value,
    to_dict,
    to_toml,
)

ROOT = Path(__file__).parents[1]


def changed() -> RunConfig:
    return override(
        RunConfig(),
        [
            "model.pooling=isice(n_iter=3)",
            "model.reduce=none",
            "optim.milestones=[3, 7]",
            'data.root=a "b" é',
            "seed=4",
        ],
    )


@pytest.mark.parametrize("config", [RunConfig(), changed()], ids=["defaults", "changed"])
def test_toml_round_trip(config, tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(to_toml(config), encoding="utf-8")
    assert load_config(path) == config


def test_dict_round_trip():
    assert from_dict(to_dict(changed())) == changed()


def test_overrides_read_the_type_of_the_field():
    config = override(
        RunConfig(),
        [
            "optim.lr=1",
            "model.pretrained=TRUE",
            "model.checkpoint_path=None",
            "optim.milestones=5,",
            "model.backbone='7'",
        ],
    )
    assert config.optim.lr == 1.0
    assert type(config.optim.lr) is float
    assert config.model.pretrained is True
    assert config.model.checkpoint_path is None
    assert config.optim.milestones == (5,)
    assert config.model.backbone == "7"


def test_later_override_wins():
    assert override(RunConfig(), ["seed=1", "seed=2"]).seed == 2


def test_configs_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        RunConfig().seed = 3


@pytest.mark.parametrize(
    ("key", "meant"),
    [("optim.lrr", "optim.lr"), ("optm.lr", "optim"), ("lr", "optim.lr"), ("model.batch_size", "data.batch_size")],
)
def test_unknown_key_suggests(key, meant):
    with pytest.raises(ValueError, match=rf"unknown key.*Did you mean '{meant}'"):
        override(RunConfig(), [f"{key}=1"])


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("optim.epochs=1.5", "'optim.epochs' to be of type int, got 1.5"),
        ("optim.lr=fast", "'optim.lr' to be of type float, got 'fast'"),
        ("model.pretrained=1", "'model.pretrained' to be of type bool, got 1"),
        ("optim.milestones=3", "'optim.milestones' to be of type list, got 3"),
        ("optim.milestones=[1.5]", "'optim.milestones' to be of type int, got 1.5"),
        ("seed=true", "'seed' to be of type int, got True"),
        ("model=gap", "'model' to be a table"),
    ],
)
def test_wrong_type_names_the_key(assignment, message):
    with pytest.raises(TypeError, match=message.replace("[", r"\[")):
        override(RunConfig(), [assignment])


@pytest.mark.parametrize(
    "assignment",
    [
        "optim.lr=0",
        "optim.epochs=0",
        "optim.schedule=linear",
        "data.batch_size=0",
        "data.val_fraction=1.0",
        "model.reduce=0",
        "precision=fp8",
        "select_on=train",
        "devices=0",
        "checkpoint_every_steps=0",
        "optim.optimizer=adam",
        "optim.label_smoothing=1.0",
        "optim.ema_decay=1.0",
        "optim.clip_norm=0",
        "optim.accumulate=0",
        "optim.head_epochs=-1",
        "optim.classifier_weight_decay=-1",
        "seed=-1",
    ],
)
def test_values_out_of_range(assignment):
    with pytest.raises(ValueError, match=assignment.split("=")[0]):
        override(RunConfig(), [assignment])


@pytest.mark.parametrize("text", ["optim.lr", "=3"])
def test_override_needs_key_and_equals(text):
    with pytest.raises(ValueError, match="expected an override like"):
        override(RunConfig(), [text])


def test_hash_depends_on_settings_that_change_the_result():
    base = RunConfig()
    assert config_hash(base) == config_hash(from_dict(to_dict(base)))
    assert config_hash(base) != config_hash(set_value(base, "optim.lr", 0.5))
    assert config_hash(base) != config_hash(set_value(base, "seed", 1))
    assert config_hash(set_value(base, "optim.lr", 1)) == config_hash(set_value(base, "optim.lr", 1.0))


# Computed before data.split became data.partition: finished runs are found by their hash.
@pytest.mark.parametrize(
    ("assignments", "expected"),
    [
        ([], "785663b686fb"),
        (["data.partition=3"], "1684d641c50b"),
        (
            ["data.partition=10", "data.name=dtd", "optim.lr=0.01", "model.pooling=isice(n_iter=3)"],
            "fd589cffdb82",
        ),
    ],
)
def test_hashes_do_not_change_between_versions(assignments, expected):
    assert config_hash(override(RunConfig(), assignments)) == expected


def test_former_key_of_an_override_is_read_with_a_warning():
    with pytest.warns(FutureWarning, match=r"'data.split' is deprecated; write 'data.partition'"):
        assert override(RunConfig(), ["data.split=3"]).data.partition == 3


def test_former_key_of_a_file_is_read_with_a_warning(tmp_path):
    path = tmp_path / "old.toml"
    path.write_text("[data]\nsplit = 3\n\n[axes.x.a]\nrepeat.data.split = [1, 2]\n")
    with pytest.warns(FutureWarning, match=r"'data.split' is deprecated"):
        found = read_toml(path)
    assert found == {"data": {"partition": 3}, "axes": {"x": {"a": {"repeat": {"data": {"partition": [1, 2]}}}}}}


def test_record_written_before_a_rename_loads_without_a_warning():
    path = next(ROOT.glob("benchmarks/results/cub200_vgg16_224/isice-*/record.json"))
    record = json.loads(path.read_text(encoding="utf-8"))
    assert "split" in record["config"]["data"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = from_dict(record["config"])
    assert config_hash(config) == record["hash"]


@pytest.mark.parametrize(
    "assignment", ["device=cpu", "devices=8", "threads=1", "compile=true", "data.workers=3", "data.root=elsewhere"]
)
def test_hash_ignores_execution_settings(assignment):
    assert config_hash(RunConfig()) == config_hash(override(RunConfig(), [assignment]))


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load_config(tmp_path / "no.toml")
    (tmp_path / "bad.toml").write_text("a = ")
    with pytest.raises(ValueError, match=r"valid TOML in .*bad\.toml"):
        load_config(tmp_path / "bad.toml")


def test_lists_of_names_are_read_with_or_without_brackets():
    texts = ["backbone", "[backbone]", "['backbone', \"reduce\"]", "backbone, reduce", "[]"]
    found = [override(RunConfig(), [f"optim.freeze={text}"]).optim.freeze for text in texts]
    assert found == [("backbone",), ("backbone",), ("backbone", "reduce"), ("backbone", "reduce"), ()]


@pytest.mark.parametrize(
    "assignment", ["augment.mixup=0.2", "optim.layer_decay=0.9", "optim.swa_epochs=2", "optim.pooling_lr_factor=10"]
)
def test_added_settings_count_only_where_they_are_set(assignment):
    key = assignment.partition("=")[0]
    default = RunConfig()
    for part in key.split("."):
        default = getattr(default, part)
    assert config_hash(override(RunConfig(), [assignment])) != config_hash(RunConfig())
    assert config_hash(override(RunConfig(), [assignment, f"{key}={default}"])) == config_hash(RunConfig())


def test_swa_and_ema_exclude_each_other():
    with pytest.raises(ValueError, match=r"expected optim.swa_epochs or optim.ema_decay, got both"):
        override(RunConfig(), ["optim.ema_decay=0.9", "optim.swa_epochs=2"])
