"""Explanations: maps against closed forms, graphs against known ones, pages of a small run."""

import re

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from typer.testing import CliRunner

from isice import SPDPooling, create_model, create_pooling
from isice.config import RunConfig, override
from isice.data.synthetic import gaussian_fields, texture_covariances
from isice.explain import (
    channel_graphs,
    class_maps,
    explain_runs,
    explain_samples,
    isice_before_after,
    mean_maps,
    partial_correlations,
    structure,
)
from isice.report.explain_page import write_explanations
from isice.train import train_run

from .cli._invoke import invoke


class Shift(nn.Module):
    """Add a different constant to every channel."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.arange(1.0, x.shape[1] + 1)[:, None, None]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for pooling in ("gap", "isice"):
        settings = [f"model.pooling={pooling}", "model.reduce=8", "optim.epochs=1", "optim.lr=0.01"]
        settings += ["device=cpu", "threads=1", "tensorboard=false"]
        train_run(override(RunConfig(), settings), folder / pooling)
    return folder


@pytest.fixture
def picture(tmp_path):
    pixels = np.zeros((32, 24, 3), np.uint8)
    pixels[4:28, 10:14] = 255
    path = tmp_path / "one.png"
    Image.fromarray(pixels).save(path)
    return path


def network(pooling, **options):
    torch.manual_seed(0)
    return create_model("small_cnn", pooling=pooling, num_classes=3, reduce=6, **options).eval()


def images(size=9):
    return torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(1))


def seen_by_pooling(model, x):
    seen = []
    handle = model.pooling.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach()))
    logits = model(x).detach()
    handle.remove()
    return seen[0], logits


def test_mean_maps_are_channel_means():
    model, x = network("isice"), images()
    features, _ = seen_by_pooling(model, x)
    np.testing.assert_allclose(mean_maps(model, x), features.mean(dim=1), rtol=1e-6)


def test_maps_are_enlarged_to_the_picture():
    model = create_model("test_resnet", pooling="gap", num_classes=3, reduce=4).eval()
    x = images(64)
    small = seen_by_pooling(model, x)[0].mean(dim=1)
    large = mean_maps(model, x)
    assert small.shape[-1] < 64
    assert large.shape == (2, 64, 64)
    # The corner pixels lie beyond the centres of the corner cells, where interpolation has
    # nothing else to mix in.
    np.testing.assert_allclose(large[:, 0, 0], small[:, 0, 0], rtol=1e-5)


@pytest.mark.parametrize("method", ["centered", "hires_cam", "grad_cam"])
def test_class_maps_of_average_pooling_are_weighted_feature_maps(method):
    model, x = network("gap"), images()
    features, logits = seen_by_pooling(model, x)
    maps, classes = class_maps(model, x, method=method)
    assert classes.tolist() == logits.argmax(dim=1).tolist()
    expected = torch.einsum("bc,bchw->bhw", model.classifier.weight[classes], features).detach() / 81
    expected = expected.relu() if method == "grad_cam" else expected
    np.testing.assert_allclose(maps, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("method", ["centered", "hires_cam"])
@pytest.mark.parametrize(("pooling", "degree"), [("covariance", 2), ("isqrt_cov", 1)])
def test_class_maps_share_out_the_logit(pooling, degree, method):
    # Euler: a head that is homogeneous in the features has ⟨gradient, features⟩ =
    # degree · (logit − bias).
    model, x = network(pooling), images()
    _, logits = seen_by_pooling(model, x)
    maps, _ = class_maps(model, x, [2, 0], method=method)
    expected = degree * (logits - model.classifier.bias)[[0, 1], [2, 0]].detach()
    np.testing.assert_allclose(maps.sum(axis=(1, 2)), expected, rtol=1e-3, atol=1e-5)


def test_centered_maps_do_not_move_when_the_head_does_not():
    model, x = network("isice"), images()
    before = {method: class_maps(model, x, [0, 1], method=method)[0] for method in ("centered", "hires_cam")}
    _, logits = seen_by_pooling(model, x)
    model.reduce = nn.Sequential(model.reduce, Shift())
    np.testing.assert_allclose(seen_by_pooling(model, x)[1], logits, rtol=1e-3, atol=1e-4)
    scale = np.abs(before["centered"]).max()
    assert np.abs(class_maps(model, x, [0, 1])[0] - before["centered"]).max() < 1e-3 * scale
    assert np.abs(class_maps(model, x, [0, 1], method="hires_cam")[0] - before["hires_cam"]).max() > 0.1 * scale


@pytest.mark.parametrize("pooling", ["covariance", "isice", "partial_correlation(center=True)"])
def test_grad_cam_of_a_centred_head_is_an_error(pooling):
    with pytest.raises(ValueError, match="all weights are zero; use method='centered'"):
        class_maps(network(pooling), images(), method="grad_cam")


def test_wrong_arguments_are_named():
    model, x = network("gap"), images()
    with pytest.raises(ValueError, match=r"expected 2 classes, one per image, each in 0 … 2, got \[0, 3\]"):
        class_maps(model, x, [0, 3])
    with pytest.raises(ValueError, match="class_maps: expected method to be one of"):
        class_maps(model, x, method="gradcam")
    with pytest.raises(TypeError, match="mean_maps: expected an isice Network, got Linear"):
        mean_maps(nn.Linear(2, 2), x)
    with pytest.raises(ValueError, match="num_classes=0"):
        class_maps(create_model("small_cnn", pooling="gap", num_classes=0, reduce=4), x)


def test_modes_are_left_as_they_were():
    model = network("gap").train()
    model.backbone.eval()
    statistics = model.reduce[1].running_mean.clone()
    modes = [module.training for module in model.modules()]
    class_maps(model, images())
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(model.reduce[1].running_mean, statistics)


def test_partial_correlations_follow_the_head():
    x = torch.rand(1, 5, 6, 6, generator=torch.Generator().manual_seed(3)).double()
    cov = np.cov(x[0].flatten(1).numpy(), bias=True)
    inverse = np.linalg.inv(5 * cov / np.trace(cov) + 0.5 * np.eye(5))
    expected = -inverse / np.sqrt(np.outer(np.diag(inverse), np.diag(inverse))) + 2 * np.eye(5)
    ridge = create_pooling("partial_correlation(ridge=0.5, center=True, scale=3.0)", 5)
    np.testing.assert_allclose(partial_correlations(ridge, x)[0], expected, rtol=1e-8)
    # These estimate the same inverse up to a factor, which a partial correlation does not see.
    same = [partial_correlations(create_pooling(name, 5), x) for name in ("precision", "isice(n_iter=0)", "gap")]
    torch.testing.assert_close(same[0], same[1], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(same[0], same[2], rtol=1e-5, atol=1e-6)
    sparse = partial_correlations(create_pooling("sice(sparsity=10.0)", 5), x)
    torch.testing.assert_close(sparse[0], torch.eye(5).double())


def test_a_layer_says_itself_that_it_estimates_a_precision_matrix():
    class Fixed(SPDPooling):
        estimates_precision = True

        def transform(self, cov: Tensor) -> Tensor:
            return torch.tensor([[4.0, -1.0], [-1.0, 1.0]]).expand_as(cov)

    found = partial_correlations(Fixed(2), torch.rand(3, 2, 4, 4))
    torch.testing.assert_close(found, torch.tensor([[1.0, 0.5], [0.5, 1.0]]).expand(3, 2, 2))


@pytest.mark.parametrize("pooling", ["isice", "gap"])
def test_planted_pairs_are_found_beneath_common_factors(pooling):
    covariances = texture_covariances("partial", n_classes=2, channels=12)
    model = create_model("small_cnn", pooling=pooling, num_classes=2, reduce=None, in_chans=12, widths=(12,))
    model.backbone, model.reduce = nn.Identity(), nn.Linear(1, 1)  # the features are the images
    model.forward_features = lambda x: x
    fields = gaussian_fields(covariances, size=40)
    for cov, graph in zip(covariances, channel_graphs(model, fields, n_pairs=6), strict=True):
        inverse = np.linalg.inv(cov.double().numpy())
        planted = np.argwhere(np.triu(np.abs(inverse) >= np.sort(np.abs(np.triu(inverse, 1)).ravel())[-6], 1))
        assert {tuple(pair) for pair in graph.pairs.tolist()} == {tuple(pair) for pair in planted.tolist()}


def test_a_channel_graph_says_where_both_fire():
    model, x = network("isice"), images()
    features, _ = seen_by_pooling(model, x)
    graph = channel_graphs(model, x, n_pairs=4)[1]
    assert graph.partial_correlation.shape == (6, 6)
    upper = np.abs(graph.partial_correlation[np.triu_indices(6, 1)])
    np.testing.assert_allclose(np.abs(graph.strengths), np.sort(upper)[::-1][:4])
    for (i, j), strength, region in zip(graph.pairs, graph.strengths, graph.regions, strict=True):
        assert graph.partial_correlation[i, j] == strength
        first, second = (features[1, channel] / features[1, channel].max() for channel in (i, j))
        np.testing.assert_allclose(region, torch.minimum(first, second), rtol=1e-5)
    assert len(channel_graphs(model, x, n_pairs=99)[0].pairs) == 15


def test_structure_of_a_matrix():
    matrix = torch.tensor([[2.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 3.0]])
    facts = structure(matrix)
    np.testing.assert_allclose(facts.eigenvalues, np.linalg.eigvalsh(matrix.numpy())[::-1], rtol=1e-6)
    assert facts.density == pytest.approx(1 / 3)
    assert structure(matrix, tol=0.5).density == 0
    with pytest.raises(ValueError, match="structure: expected one matrix"):
        structure(torch.eye(2).expand(4, 2, 2))


def test_isice_before_and_after_its_steps():
    factor = torch.randn(8, 30, generator=torch.Generator().manual_seed(0)).double()
    cov = factor @ factor.T
    before, after = isice_before_after(cov, sparsity=0.5, n_inverse_iter=25)
    np.testing.assert_allclose(before.matrix, np.linalg.inv(cov.numpy() / np.trace(cov.numpy())), rtol=1e-6)
    assert before.density == 1
    assert after.density < 1
    with pytest.raises(TypeError, match="omit them"):
        isice_before_after(cov, normalize="trace")


def test_runs_are_explained_side_by_side(runs, picture, tmp_path):
    out = tmp_path / "out"
    explained = explain_runs([runs / "gap", runs / "isice"], [picture, "test:5"], target="7", n_pairs=3)
    written = write_explanations(explained, out)
    names = {"01-one-maps.png", "01-one-graph-gap.png", "01-one-graph-isice.png", "02-test-5-maps.png"}
    assert names <= {path.name for path in written.values()}
    for path in written.values():
        assert path.stat().st_size > 1000
    page = written["html"].read_text(encoding="utf-8")
    assert not re.search(r"(src|href|srcset)=\"(?!data:)", page)
    assert page.count("<figure") == 6
    assert "What gap and isice look at" in page
    with Image.open(out / "01-one-maps.png") as drawn:
        assert len(drawn.convert("RGB").getcolors(maxcolors=10**6)) > 100


def test_errors_of_explain_runs(runs, picture):
    run = runs / "gap"
    for images_, options, message in (
        ([], {}, "at least one run folder and one image"),
        (["nowhere.png"], {}, "got 'nowhere.png', which does not exist"),
        (["test:450"], {}, r"expected test:0 … test:449"),
        (["test:0"], {"target": "seven"}, "expected one of the classes 0, 1, 2"),
        (["test:0"], {"method": "cam"}, "expected method"),
    ):
        with pytest.raises((ValueError, OSError), match=message):
            explain_runs([run], images_, **options)
    with pytest.raises(ValueError, match="expected distinct runs"):
        explain_runs([run, run], [picture])


def test_test_images_are_spread_and_replace_earlier_ones(runs, tmp_path):
    write_explanations(explain_samples([runs / "gap", runs / "isice"], 3), tmp_path, graphs=False)
    assert sorted(path.name for path in tmp_path.glob("*.png") if "dark" not in path.name) == [
        "01-test-0-maps.png", "02-test-150-maps.png", "03-test-300-maps.png",
    ]  # fmt: skip
    write_explanations(explain_samples([runs / "gap"], 1), tmp_path, graphs=False)
    assert {path.name for path in tmp_path.iterdir()} == {
        "01-test-0-maps.png", "01-test-0-maps-dark.png", "captions.json", "explain.html",
    }  # fmt: skip
    with pytest.raises(ValueError, match="expected finished training runs"):
        explain_samples([])


def test_the_command_overwrites_nothing(runs, picture, tmp_path, monkeypatch):
    from isice.cli import app

    monkeypatch.chdir(tmp_path)
    arguments = ["explain", str(runs / "isice"), str(picture), "--pairs", "2"]
    for name in ("explain", "explain-2"):
        invoke(*arguments)
        assert (tmp_path / "runs" / name / "explain.html").is_file()
    result = CliRunner().invoke(app, [*arguments, "--out", "runs/explain"])
    assert isinstance(result.exception, FileExistsError)
    assert "choose another --out, or overwrite it with --force" in str(result.exception)
    page = tmp_path / "runs" / "explain" / "explain.html"
    before = page.stat().st_mtime_ns
    invoke(*arguments, "--out", "runs/explain", "--force")
    assert page.stat().st_mtime_ns > before


def test_the_command_takes_a_folder_of_runs_and_what_a_pattern_matches(runs, picture, tmp_path):
    invoke("explain", runs, picture, "--out", tmp_path / "a", "--pairs", "1")
    assert {path.stem for path in (tmp_path / "a").glob("*-graph-*")} >= {"01-one-graph-gap", "01-one-graph-isice"}
    (tmp_path / "figures").mkdir()
    output = invoke("explain", runs / "gap", tmp_path / "figures", picture, "--out", tmp_path / "b", "--pairs", "1")
    assert "figures: no run, skipped" in " ".join(output.split())
