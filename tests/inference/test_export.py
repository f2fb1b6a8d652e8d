"""Exported files equal the network for any batch size; a file that differs is not written."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from isice import create_model, list_poolings
from isice.functional import l2_normalize
from isice.inference import export
from isice.inference.export import export_model, export_run
from isice.train import load_trained

from ..train._birds import CLASSES, make_run, make_untrained

FACTS = {"classes": ["a", "b", "c"], "input": {"channels": 3, "image_size": 9}}
# Short iterations: the graph is the same step repeated. isqrt_cov is exported from a run
# below, all others when slow.
ONNX_HEADS = (
    "precision(n_inverse_iter=2)",
    "isice(n_iter=2, n_inverse_iter=2)",
    "partial_correlation(method='newton_schulz', n_inverse_iter=2)",
)
EVERY_ONNX_HEAD = (
    *("bilinear", "compact_bilinear", "covariance", "dropcov", "fcbn", "gap", "hihca", "improved_bilinear"),
    *("isice", "isice_mlp", "isice_mlp_star", "isqrt_cov", "kernel_pooling", "low_rank_bilinear", "netfv", "netvlad"),
    *("partial_correlation", "precision", "run", "smso", "spectral_map", "tkpf"),
)
NO_ONNX = {
    "deep_cov": "aten._linalg_eigh",
    "deep_kspd": "aten._linalg_eigh",
    "log_euclidean": "aten._linalg_eigh",
    "mpn_cov": "aten._linalg_eigh",
    "sice": "isice.graphical_lasso",
}


def make(pooling, backbone="small_cnn", **options):
    torch.manual_seed(0)
    model = create_model(backbone, pooling=pooling, num_classes=3, reduce=6, **options)
    model(torch.rand(4, 3, 32, 32))  # moves the BatchNorm statistics away from their start
    return model.eval()


def run_onnx(path, images):
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(["logits"], {"images": images.numpy()})[0])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("export"), "optim.epochs=1", "model.pooling=isqrt_cov")


@pytest.mark.parametrize("pooling", ONNX_HEADS)
def test_onnx_computes_the_networks_logits(tmp_path, pooling):
    model = make(pooling)
    exported = export_model(model, FACTS, "onnx", tmp_path / "model.onnx")
    assert exported.difference < 1e-4
    images = torch.randn(5, 3, 9, 9)
    expected = model(images).detach()
    scale = float(expected.abs().max())
    torch.testing.assert_close(run_onnx(exported.path, images), expected, rtol=0, atol=1e-4 * scale)


class Normalized(nn.Module):
    """Divide by a norm plus 1e-12."""

    def forward(self, x):
        return l2_normalize(x.flatten(1))[:, :3] + 1


def test_small_safeguards_survive_in_onnx(tmp_path):
    exported = export_model(Normalized(), FACTS, "onnx", tmp_path / "model.onnx")
    torch.testing.assert_close(run_onnx(exported.path, torch.zeros(2, 3, 9, 9)), torch.ones(2, 3))


@pytest.mark.slow
@pytest.mark.parametrize("pooling", EVERY_ONNX_HEAD)
def test_every_other_head_exports_to_onnx(tmp_path, pooling):
    assert export_model(make(pooling), FACTS, "onnx", tmp_path / "model.onnx").difference < export.TOLERANCE


@pytest.mark.parametrize(
    "pooling", [name if name == "log_euclidean" else pytest.param(name, marks=pytest.mark.slow) for name in NO_ONNX]
)
def test_operations_without_an_onnx_equivalent_are_named(tmp_path, pooling):
    with pytest.raises(ValueError, match=rf"got {NO_ONNX[pooling]}, which ONNX lacks; use --format torch"):
        export_model(make(pooling), FACTS, "onnx", tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_the_guide_knows_every_head():
    text = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    assert sorted([*EVERY_ONNX_HEAD, *NO_ONNX]) == list_poolings()
    listed = text.partition("All but ")[2].partition(" also export to ONNX")[0]
    assert sorted(listed.split("`")[1::2]) == sorted(NO_ONNX)


@pytest.mark.parametrize("pooling", ["sice", *(pytest.param(n, marks=pytest.mark.slow) for n in ("mpn_cov", "isice"))])
def test_program_computes_the_networks_logits(tmp_path, pooling):
    model = make(pooling)
    exported = export_model(model, FACTS, "torch", tmp_path / "model.pt2")
    images = torch.randn(5, 3, 9, 9)
    torch.testing.assert_close(torch.export.load(exported.path).module()(images), model(images))


@pytest.mark.slow
@pytest.mark.parametrize(("backbone", "options"), [("test_resnet", {}), ("test_vit", {"img_size": 32})])
def test_timm_backbones(tmp_path, backbone, options):
    facts = {"classes": ["a", "b", "c"], "input": {"channels": 3, "image_size": 32}}
    model = make("gap", backbone, **options)
    assert export_model(model, facts, "onnx", tmp_path / "model.onnx").difference < 1e-4


def test_a_run_exports_into_its_folder_with_its_facts(run):
    import onnx

    exported = export_run(run, "onnx")
    assert exported.path == run / "model.onnx"
    stored = {prop.key: prop.value for prop in onnx.load(exported.path).metadata_props}
    facts = json.loads(stored["isice"])
    assert facts["classes"] == list(CLASSES)
    assert facts["input"]["image_size"] == 8
    images = torch.rand(2, 3, 8, 8)
    expected = load_trained(run).model(images).detach()
    torch.testing.assert_close(run_onnx(exported.path, images), expected, rtol=1e-4, atol=1e-4)


def test_a_program_stores_its_facts_too(run, tmp_path):
    exported = export_run(run, "torch", tmp_path / "deep" / "birds.pt2")
    extra = {export.FACTS_FILE: ""}
    torch.export.load(exported.path, extra_files=extra)
    assert json.loads(extra[export.FACTS_FILE])["classes"] == list(CLASSES)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["birds.pt2"]


@pytest.mark.parametrize("wrong", [lambda logits: logits * 1.01, lambda logits: logits * float("nan")])
def test_a_file_that_differs_is_an_error_and_not_written(tmp_path, monkeypatch, wrong):
    load = torch.export.load

    def load_wrong(path):
        call = load(path).module()
        return SimpleNamespace(module=lambda: lambda images: wrong(call(images)))

    monkeypatch.setattr(torch.export, "load", load_wrong)
    with pytest.raises(ValueError, match=r"relative difference of (0\.01|nan)"):
        export_model(make("gap"), FACTS, "torch", tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []


def test_the_model_is_left_as_it_was(tmp_path):
    model = make("gap").train()
    export_model(model, FACTS, "torch", tmp_path / "model.pt2")
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())


class TestErrors:
    def test_missing_extra(self, run, monkeypatch):
        monkeypatch.setitem(sys.modules, "onnxscript", None)
        with pytest.raises(ImportError, match=r"onnxscript, which is not installed; pip install 'isice\[export\]'"):
            export_run(run, "onnx")

    def test_unknown_format(self, run):
        with pytest.raises(ValueError, match=r"'onnx', 'torch', got 'onx'\. Did you mean 'onnx'"):
            export_run(run, "onx")

    def test_suffix_of_another_format(self, run):
        with pytest.raises(ValueError, match=r"ending in \.pt2 for torch, got 'model\.onnx'"):
            export_run(run, "torch", "model.onnx")

    def test_missing_run(self):
        with pytest.raises(FileNotFoundError, match="which does not exist"):
            export_run("nowhere", "torch")

    def test_no_such_checkpoint(self, tmp_path):
        make_untrained(tmp_path, "digits", in_chans=1, num_classes=10)
        with pytest.raises(FileNotFoundError, match="use which='best'"):
            export_run(tmp_path, "torch", which="last")
