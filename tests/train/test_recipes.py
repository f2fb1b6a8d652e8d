"""Every recipe resolves to a run that can be built, and the paper's recipes have its settings."""

from importlib.resources import files

import pytest
import torch

from isice import create_model
from isice.cli.training import default_recipe
from isice.config import config_hash, from_dict, load_config, override, to_dict, to_toml
from isice.data import dataset_info, load_splits
from isice.experiments.loader import load_recipe
from isice.inference.predict import input_facts
from isice.models import PAPER_BACKBONES
from isice.pooling import create_pooling
from isice.records import write_record
from isice.train import train_run
from isice.train.backbone_input import follow_backbone_input
from isice.train.checkpoint import read_checkpoint
from isice.train.optim import lr_factor
from tests.train._birds import make_pictures
from tests.train._tiny import TINY, Linear, build_linear

NAMES = sorted(path.name.removesuffix(".toml") for path in files("isice.experiments").joinpath("recipes").iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_resolves(name, tmp_path):
    config = load_recipe(name)
    assert from_dict(to_dict(config)) == config
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert load_config(tmp_path / "config.toml") == config
    assert config.model.backbone in (*PAPER_BACKBONES, "small_cnn")
    assert create_pooling(config.model.pooling, config.model.reduce).out_features > 0
    assert dataset_info(config.data.name).channels in (1, 3)
    assert override(config, ["optim.lr=1"]).optim.lr == 1.0


@pytest.mark.parametrize(("name", "lr"), [("paper_cnn", 1.2e-4), ("paper_transformer", 5e-5)])
def test_fine_tuning_of_the_paper(name, lr):
    config = load_recipe(name)
    rates = [config.optim.lr * lr_factor(config.optim, epoch) for epoch in (0, 14.99, 15, 29.99, 30, 49)]
    assert rates == pytest.approx([lr, lr, lr / 10, lr / 10, lr / 100, lr / 100])
    assert config.optim.optimizer == "adamw"
    assert (config.model.reduce, config.data.transform, config.data.image_size) == (256, "paper", None)
    sizes = {"cub200": 448, "inaturalist2017": 299, "mini_imagenet": 224}
    assert {data: dataset_info(data).image_size for data in sizes} == sizes


def test_imagenet100_of_the_paper():
    config = load_recipe("imagenet100")
    assert (config.optim.epochs, config.optim.lr, config.optim.milestones) == (100, 0.01, (15, 30, 45))
    assert config.data.image_size == 224
    assert not config.model.pretrained


def test_short():
    config = load_recipe("short")
    assert (config.optim.epochs, config.optim.lr, config.optim.classifier_lr_factor) == (24, 1.2e-4, 5.0)
    assert (config.data.image_size, config.precision) == (224, "bf16")


def test_the_published_recipe():
    config = load_recipe("published_cnn")
    assert (config.data.transform, config.data.batch_size, config.eval_flip) == ("center", 50, True)
    assert (config.optim.weight_decay, config.optim.classifier_weight_decay, config.optim.epochs) == (0.05, 0.0, 100)
    assert config.select_on == "last"


def test_mirror_averaging_in_evaluation(tmp_path):
    config = override(TINY, ["eval_flip=true", "optim.epochs=1"])
    record = train_run(config, tmp_path, build=build_linear)
    test, model = load_splits(config.data).test, Linear()
    model.load_state_dict(read_checkpoint(tmp_path, "best").weights)
    images = torch.stack([test[index][0] for index in range(len(test))])
    with torch.no_grad():
        both = model(images).softmax(dim=1) + model(images.flip(-1)).softmax(dim=1)
        alone = (model(images).argmax(dim=1) == test.targets).double().mean().item()
    expected = (both.argmax(dim=1) == test.targets).double().mean().item()
    assert record["accuracy"]["test"] == pytest.approx(expected)
    assert expected != alone


def test_finetune_is_the_default_of_a_named_backbone():
    assert default_recipe(["model.backbone=tf_efficientnet_lite0"]) == "finetune"
    assert default_recipe(["model.backbone=resnet50", "model.backbone=small_cnn"]) == "small"
    assert default_recipe(["model.pooling=gap"]) == "small"
    config = load_recipe("finetune")
    assert config.model.pretrained
    assert config.data.name == "folder"
    assert config.model.reduce <= (config.data.image_size // 32) ** 2


def test_train_run_follows_the_backbone_but_keeps_finished_runs(tmp_path):
    config = override(TINY, ["optim.epochs=1", "data.name=folder", f"data.root={make_pictures(tmp_path / 'pictures')}"])
    config = override(config, ["data.image_size=8", "data.batch_size=10", "data.val_fraction=0"])
    config = override(config, ["model.backbone=test_vit"])  # the model is another, for speed
    record = train_run(config, tmp_path / "new", build=small_colour_model)
    assert record["config"]["data"]["mean"] == [0.5, 0.5, 0.5]
    assert train_run(config, tmp_path / "new") == record
    earlier = {**record, "config": to_dict(config), "hash": config_hash(config)}
    write_record(tmp_path / "earlier", earlier)
    assert train_run(config, tmp_path / "earlier") == earlier


def small_colour_model(config, splits):
    return create_model("small_cnn", pooling="gap", num_classes=len(splits.info.classes), reduce=4)


def test_the_normalisation_follows_the_backbone():
    config = override(load_recipe("finetune"), ["model.backbone=tf_efficientnet_lite0"])
    followed = follow_backbone_input(config)
    assert followed.data.mean == followed.data.std == (0.5, 0.5, 0.5)
    assert input_facts(followed.data)["mean"] == [0.5, 0.5, 0.5]  # of the exported file and the model card
    chosen = override(config, ["data.mean=0.1,0.2,0.3", "data.std=1.0,1.0,1.0"])
    assert follow_backbone_input(chosen) == chosen
    for name in (*PAPER_BACKBONES, "small_cnn"):
        paper = override(load_recipe("paper_cnn"), [f"model.backbone={name}", "data.name=cub200"])
        assert config_hash(follow_backbone_input(paper)) == config_hash(paper), name
