"""Weight files: every usual shape loads, the report is true, and code in a file never runs."""

import contextlib
import logging

import pytest
import timm
import torch
from safetensors.torch import save_file

from isice.models import Network, SmallCNN, create_backbone, create_model, load_weights


def small(num_classes=3, seed=0):
    torch.manual_seed(seed)
    return create_model("small_cnn", pooling="gap", num_classes=num_classes, reduce=4, in_chans=1, widths=(4, 6))


def same(first, second):
    return all(torch.equal(value, second[key]) for key, value in first.items())


@pytest.mark.parametrize(
    "nest", [lambda s: s, *(lambda s, k=k: {k: s, "epoch": 3} for k in ("state_dict", "model", "model_state"))]
)
@pytest.mark.parametrize("prefix", ["", "module.", "module._orig_mod."])
def test_whole_network_from_pth(tmp_path, nest, prefix):
    source, model = small(seed=1), small(seed=2)
    torch.save(nest({prefix + key: value for key, value in source.state_dict().items()}), tmp_path / "a.pth")
    report = load_weights(model, tmp_path / "a.pth")
    assert report.complete
    assert report is model.load_report
    assert same(source.state_dict(), model.state_dict())


def test_backbone_only_in_half_precision(tmp_path):
    source = timm.create_model("test_resnet", num_classes=5)
    save_file({key: value.half() for key, value in source.state_dict().items()}, tmp_path / "a.safetensors")
    model = create_model(
        "test_resnet", pooling="gap", num_classes=3, reduce=4, checkpoint_path=tmp_path / "a.safetensors"
    )
    weight, original = next(model.backbone.parameters()), next(source.parameters())
    assert weight.dtype == torch.float32
    assert torch.equal(weight, original.half().float())
    report = model.load_report
    assert set(report.unexpected) == {"fc.weight", "fc.bias"}
    assert {key.split(".")[0] for key in report.missing} == {"reduce", "classifier"}
    assert len(report.matched) == len(model.backbone.state_dict())


def test_torchvision_vgg_names(tmp_path):
    names = {"features.0.weight": torch.full((64, 3, 3, 3), 0.5), "classifier.6.bias": torch.zeros(1000)}
    save_file(names, tmp_path / "vgg.safetensors")
    options = {"pooling": "gap", "num_classes": 2, "reduce": 4, "img_size": 32}
    model = create_model("vgg11", checkpoint_path=tmp_path / "vgg.safetensors", strict=False, **options)
    assert model.load_report.matched == ("backbone.model.features.0.weight",)
    assert model.load_report.unexpected == ("classifier.6.bias",)
    assert "1 of 24 tensors of the model matched (backbone 1 of 16, reduce 0 of 6, classifier 0 of 2)" in str(
        model.load_report
    )
    assert torch.all(model.backbone.model.features[0].weight == 0.5)


def test_position_embeddings_are_resampled(tmp_path):
    source = create_backbone("test_vit", img_size=64)
    torch.save(source.model.state_dict(), tmp_path / "vit.pth")
    model = Network(create_backbone("test_vit", img_size=(64, 96)), pooling="gap", num_classes=2, reduce=4)
    report = load_weights(model, tmp_path / "vit.pth")
    assert report.wrong_shape == ()
    assert "backbone.model.pos_embed" in report.matched
    assert torch.equal(model.backbone.model.pos_embed[:, 0], source.model.pos_embed[:, 0])


def test_other_number_of_classes_is_reported_and_kept(tmp_path, caplog):
    source, model = small(num_classes=5), small(num_classes=3, seed=2)
    before = model.classifier.weight.clone()
    save_file(source.state_dict(), tmp_path / "a.safetensors")
    with caplog.at_level(logging.INFO, "isice"):
        report = load_weights(model, tmp_path / "a.safetensors")
    assert report.wrong_shape == (
        "classifier.weight: file (5, 4), model (3, 4)",
        "classifier.bias: file (5,), model (3,)",
    )
    assert report.missing == report.unexpected == ()
    assert torch.equal(model.classifier.weight, before)
    assert same(source.backbone.state_dict(), model.backbone.state_dict())
    total = len(model.state_dict())
    assert f"a.safetensors: {total - 2} of {total} tensors of the model matched (backbone " in caplog.text
    assert str(report) in caplog.text


def test_any_module_can_be_filled(tmp_path):
    source, target = SmallCNN(1), SmallCNN(1)
    torch.save({"net": source.state_dict()}, tmp_path / "a.pt")
    assert load_weights(target, tmp_path / "a.pt").complete
    assert same(source.state_dict(), target.state_dict())


class Trap:
    """Would touch a file when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_a_pickle_with_code_is_refused_and_not_run(tmp_path):
    torch.save({"model": Trap(tmp_path / "ran")}, tmp_path / "a.pth")
    with pytest.raises(ValueError, match=r"load_weights: .*a\.pth.*with code.*convert it to safetensors"):
        load_weights(small(), tmp_path / "a.pth")
    assert not (tmp_path / "ran").exists()


def test_errors_name_the_file_and_the_problem(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"load_weights: expected a weight file at .*none\.pth"):
        load_weights(small(), tmp_path / "none.pth")
    with pytest.raises(FileNotFoundError, match="that is a folder"):
        load_weights(small(), tmp_path)
    with pytest.raises(TypeError, match="load_weights: expected a torch module, got str"):
        load_weights("a.pth", tmp_path)
    torch.save({"other.weight": torch.zeros(2)}, tmp_path / "a.pth")
    with pytest.raises(ValueError, match=r"no tensor agrees in name and shape: the file has other\.weight"):
        load_weights(small(), tmp_path / "a.pth")
    torch.save({"epoch": 3}, tmp_path / "b.pth")
    with pytest.raises(ValueError, match=r"expected tensors by name .* got the keys epoch"):
        load_weights(small(), tmp_path / "b.pth")
    torch.save([torch.zeros(2)], tmp_path / "c.pth")
    with pytest.raises(ValueError, match="got list"):
        load_weights(small(), tmp_path / "c.pth")
    for name in ("d.safetensors", "d.pth"):
        (tmp_path / name).write_bytes(b"not a weight file at all")
        with pytest.raises(ValueError, match=name):
            load_weights(small(), tmp_path / name)


@pytest.mark.parametrize(
    "content",
    [b"", b"\x80", b"\x80\x02h\x05.", b"\x80\x02.", b"\x80\x02e.", b"N.", b"PK\x03\x04", b"\x80\x02X\xff\xff\xff\x7f"],
)
def test_a_damaged_pickle_is_named_in_one_line(tmp_path, content):
    (tmp_path / "a.pth").write_bytes(content)
    with pytest.raises(ValueError, match=r"^load_weights: expected .*a\.pth") as caught:
        load_weights(small(), tmp_path / "a.pth")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_cut_or_overwritten_is_named(tmp_path):
    torch.save(small().state_dict(), tmp_path / "whole.pth")
    whole = (tmp_path / "whole.pth").read_bytes()
    for start in range(0, len(whole), len(whole) // 20):
        (tmp_path / "a.pth").write_bytes(whole[:start] + b"\x00\xff" * 10 + whole[start + 20 :])
        with contextlib.suppress(ValueError):  # only the values of a tensor may have changed
            load_weights(small(), tmp_path / "a.pth")
        (tmp_path / "a.pth").write_bytes(whole[:start])
        with pytest.raises(ValueError, match=r"load_weights: .*a\.pth"):
            load_weights(small(), tmp_path / "a.pth")


def test_a_file_of_another_backbone_is_an_error(tmp_path):
    model = create_model("test_resnet", pooling="gap", num_classes=2, reduce=8)
    state = dict(list(model.backbone.model.state_dict().items())[:2])
    torch.save(state, tmp_path / "other.pth")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=r"expected weights for most of the backbone, got \d of \d+ .*strict=False"):
        load_weights(model, tmp_path / "other.pth")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with pytest.raises(ValueError, match="expected weights for most of the backbone"):
        create_model("test_resnet", pooling="gap", num_classes=2, checkpoint_path=tmp_path / "other.pth")
    report = load_weights(model, tmp_path / "other.pth", strict=False)
    assert len(report.matched) == 2
