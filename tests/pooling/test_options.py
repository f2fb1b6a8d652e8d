"""The contract for options that change the result: shrinkage, scale, maps, concatenations."""

import math
import warnings

import pytest
import torch

import isice.functional as F
from isice import create_model
from isice._specs import spec_name, split_sum
from isice.pooling import create_pooling, list_poolings, pooling_class
from isice.testing import POOLING_CHECKS

from .test_contract import CHANNELS, make, make_with_few_steps

SPECS = [
    "partial_correlation(ridge=10, scale=5)",
    "partial_correlation(ridge='ledoit_wolf', center=True)",
    "partial_correlation(ridge='oas', center=True, learn_ridge=True)",
    "partial_correlation(ridge='schaefer_strimmer', center=True, learn_scale=True)",
    "partial_correlation(ridge=10, learn_ridge=True, learn_scale=True, standardize=True)",
    "isqrt_cov(scale=2.0, learn_scale=True, standardize=True)",
    "spectral_map(kind='log', normalize='correlation')",
    "spectral_map(power=0.5, scale=3.0)",
    "isice(ridge=1.0)",
    "isqrt_cov + partial_correlation(ridge=10, scale=5) + 2 * gap",
    "isice_mlp + 0.5 * gap",
]


def features(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).relu().to(dtype)


@pytest.mark.parametrize("spec", SPECS)
class TestOptions:
    @pytest.mark.parametrize("check", POOLING_CHECKS)
    def test_contract(self, spec, check):
        POOLING_CHECKS[check](make_with_few_steps(spec) if check in ("compiles", "exports") else make(spec))

    def test_gradcheck(self, spec):
        layer = create_pooling(spec, 4).double()
        x = features(2, 4, 3, 3, seed=2, dtype=torch.float64).requires_grad_()
        assert torch.autograd.gradcheck(layer, x, atol=1e-4)


@pytest.mark.parametrize("center", [True, False])
def test_partial_correlation_of_a_ridge(center):
    x = features(2, CHANNELS, 5, 5, dtype=torch.float64)
    flat = x.flatten(2) - (x.mean((2, 3))[..., None] if center else 0.0)
    moments = torch.einsum("bin,bjn->bij", flat, flat) / 25
    trace = torch.einsum("bii->b", moments)[:, None, None]
    inverse = torch.linalg.inv(CHANNELS * moments / trace + 10 * torch.eye(8))
    scale = inverse.diagonal(dim1=1, dim2=2).rsqrt()
    expected = -scale[:, :, None] * inverse * scale[:, None, :]
    expected.diagonal(dim1=1, dim2=2).fill_(1.0)
    layer = create_pooling(f"partial_correlation(ridge=10, scale=5, center={center})", CHANNELS)
    torch.testing.assert_close(layer(x), 5 * F.vectorize(expected))
    assert not layer.state_dict()


def test_defaults_of_partial_correlation():
    given = create_pooling("partial_correlation(ridge=10.0, scale=5.0, center=False, method='ridge')", CHANNELS)
    assert repr(create_pooling("partial_correlation", CHANNELS)) == repr(given)


def test_learned_values_start_where_the_options_say():
    x = features(2, CHANNELS, 5, 5)
    plain = create_pooling("partial_correlation(ridge=10, scale=5)", CHANNELS)
    learned = create_pooling("partial_correlation(ridge=10, scale=5, learn_ridge=True, learn_scale=True)", CHANNELS)
    torch.testing.assert_close(learned(x), plain(x))
    assert learned.log_ridge.item() == pytest.approx(math.log(10))
    data, factor = (
        create_pooling(f"partial_correlation(ridge='oas', center=True{more})", 8) for more in ("", ", learn_ridge=True")
    )
    torch.testing.assert_close(factor(x), data(x))


@pytest.mark.parametrize("name", ["isqrt_cov", "isqrt_cov(scale=3)", "partial_correlation", "spectral_map"])
def test_standardize_gives_the_standard_deviation_scale(name):
    spec = name[:-1] + ", standardize=True)" if name.endswith(")") else f"{name}(standardize=True)"
    layer, x = create_pooling(spec, CHANNELS), features(20, CHANNELS, 5, 5)
    torch.testing.assert_close(layer(x), create_pooling(name, CHANNELS)(x))
    assert layer.wants_data
    layer.init_from(x)
    assert layer(x).var(dim=0, correction=0).mean().item() == pytest.approx(layer.scale**2, rel=1e-4)
    before = layer.output.gain.clone()
    layer.init_from(x[:1])
    assert torch.equal(layer.output.gain, before)


@pytest.mark.parametrize("name", ["isice", "isice_mlp", "isice_mlp_star"])
def test_isice_with_a_ridge_is_that_of_the_shrunk_covariance(name):
    x = features(2, CHANNELS, 5, 5)
    cov = F.covariance(x)
    mean = cov.diagonal(dim1=1, dim2=2).mean(1)[:, None, None]
    expected = F.isice(cov + 3 * mean * torch.eye(CHANNELS), vectorized=True)
    torch.testing.assert_close(create_pooling(f"{name}(ridge=3.0)", CHANNELS)(x), expected)


def test_concatenation():
    spec = "isqrt_cov + partial_correlation(ridge=10, scale=5) + 2 * gap"
    x, layer = features(3, CHANNELS, 5, 5), create_pooling(spec, CHANNELS)
    parts = [create_pooling(part, CHANNELS)(x) for part in ("isqrt_cov", "partial_correlation(ridge=10, scale=5)")]
    torch.testing.assert_close(layer(x), torch.cat([*parts, 2 * x.mean(dim=(2, 3))], dim=1))
    assert layer.out_features == 36 + 36 + 8
    alone, factor = create_pooling("3 * gap", CHANNELS), x.mean(dim=(2, 3))
    torch.testing.assert_close(alone(x), 3 * factor)
    assert repr(create_pooling(repr(layer), CHANNELS)) == repr(layer)
    standardized = create_pooling("isqrt_cov(standardize=True) + gap", CHANNELS)
    standardized.init_from(x)
    assert standardized.parts[0].output.gain != 1


def test_concatenation_in_a_model():
    model = create_model("small_cnn", pooling="isqrt_cov + 2 * gap", num_classes=3, reduce=8)
    assert model.classifier.in_features == 36 + 8
    assert model(torch.rand(2, 3, 16, 16)).shape == (2, 3)
    assert spec_name("isqrt_cov(n_iter=3) + 2 * gap") == "isqrt_cov+gap"
    assert split_sum("isqrt_cov(n_iter=3)") == [(1.0, "isqrt_cov(n_iter=3)")]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("gap + no_such", r"expected one of .*, got 'no_such'"),
        ("gap - gap", "expected a sum such as"),
        ("gap + gap * 2", "expected a sum such as"),
        ("gap + 0 * gap", "concatenation: expected a finite factor of gap > 0"),
        ("gap + low_rank_bilinear", "expected poolings that return vectors, got low_rank_bilinear"),
        ("partial_correlation(ridge='oass')", r"expected ridge to be one of .*Did you mean 'oas'"),
        ("partial_correlation(ridge=0)", "expected a finite ridge > 0"),
        ("partial_correlation(method='newton_schulz', ridge='oas')", "expected method='ridge'"),
        ("partial_correlation(ridge='oas')", "expected center=True"),
        ("isqrt_cov(scale=0)", "isqrt_cov: expected a finite scale > 0"),
        ("isice(ridge=-1)", "isice: expected a finite ridge"),
        ("bilinear(eps=0)", "bilinear: expected a finite eps > 0"),
        ("improved_bilinear(eps=-1)", "improved_bilinear: expected a finite eps > 0"),
        ("netfv(eps=0)", "netfv: expected a finite eps > 0"),
        ("smso(eps=0)", "smso: expected a finite eps > 0"),
        ("isice(n_iter=-1)", "isice: expected n_iter ≥ 0, got -1"),
        ("isice(sparsity=-1.0)", "isice: expected a finite sparsity ≥ 0"),
        ("isice_mlp(normalize='l2')", "isice_mlp: expected normalize to be one of"),
        ("isice_mlp(tau=-1)", "isice_mlp: expected a finite tau ≥ 0"),
        ("isice_mlp_star(summary='mean')", "isice_mlp_star: expected summary to be one of"),
        ("isice_mlp_star(first_gradient='printed')", "isice_mlp_star: expected first_gradient to be one of 'inverse'"),
        ("isqrt_cov(n_iter=0)", "isqrt_cov: expected n_iter ≥ 1, got 0"),
        ("precision(n_inverse_iter=0)", "precision: expected n_inverse_iter ≥ 1"),
        ("sice(sparsity=0.0)", "sice: expected a finite sparsity > 0"),
        ("sice(ridge=-1.0)", "sice: expected a finite ridge ≥ 0"),
        ("sice(output='covariance')", "sice: expected output to be one of"),
        ("sice(tol=-1.0)", "sice: expected a finite tol > 0"),
        ("sice(max_iter=0)", "sice: expected max_iter ≥ 1"),
        (
            "compact_bilinear(method='tensor_scetch')",
            "expected method .*Did you mean 'tensor_sketch'",
        ),
        ("compact_bilinear(n_features=0)", "compact_bilinear: expected n_features ≥ 1, got 0"),
        ("run(n_iter=0)", "run: expected n_iter ≥ 1, got 0"),
        ("run(n_features=0)", "run: expected n_features ≥ 1"),
        ("fcbn(n_left=0)", "fcbn: expected n_left ≥ 1, got 0"),
        ("hihca(degree=1)", "hihca: expected degree ≥ 2, got 1"),
        ("kernel_pooling(order=1)", "kernel_pooling: expected order ≥ 2, got 1"),
        ("kernel_pooling(gamma=0)", "kernel_pooling: expected a finite gamma > 0"),
        ("tkpf(n_left=60)", "tkpf: expected n_left and n_right to be multiples of 16, got 60, 64"),
        ("tkpf(combine='mean')", "tkpf: expected combine to be one of 'sum', 'concat', got 'mean'"),
        ("low_rank_bilinear(rank=5)", "low_rank_bilinear: expected an even rank"),
        ("deep_cov(function='pow')", "deep_cov: expected function to be one of 'power', 'log', got 'pow'"),
    ],
)
def test_errors(spec, message):
    with pytest.raises(ValueError, match=message):
        create_pooling(spec, CHANNELS, num_classes=3)


@pytest.mark.parametrize("name", [name for name in list_poolings() if "seed" in pooling_class(name).option_defaults()])
def test_a_seed_is_a_natural_number(name):
    with pytest.raises(TypeError, match=f"{name}: expected seed to be an integer, got 1.5"):
        create_pooling(f"{name}(seed=1.5)", CHANNELS)
    with pytest.raises(ValueError, match=f"{name}: expected seed ≥ 0, got -1"):
        create_pooling(f"{name}(seed=-1)", CHANNELS)


@pytest.mark.parametrize(
    ("used", "unused", "default"),
    [("method='newton_schulz'", "ridge=3.0", "ridge=10.0"), ("method='ridge'", "n_inverse_iter=3", "n_inverse_iter=7")],
)
def test_an_option_without_effect_warns_and_takes_its_default(used, unused, default):
    with pytest.warns(UserWarning, match=rf"expected no {unused.split('=')[0]} with {used}.*leave it out"):
        layer = create_pooling(f"partial_correlation({used}, {unused})", CHANNELS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = create_pooling(f"partial_correlation({used})", CHANNELS)
        assert repr(create_pooling(repr(layer), CHANNELS)) == repr(layer) == repr(plain)
    assert default in layer.spec


def test_the_diagonal_of_partial_correlations_is_the_scale():
    layer = create_pooling("partial_correlation(scale=2.5)", CHANNELS)
    diagonal = layer.matrix(features(2, CHANNELS, 5, 5)).diagonal(dim1=1, dim2=2)
    assert torch.equal(diagonal, torch.full_like(diagonal, 2.5))


def test_partial_correlation_keeps_little_for_the_backward_pass():
    kept = []
    x = features(4, 64, 7, 7).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        create_pooling("partial_correlation(ridge=10, scale=5)", 64)(x)
    assert sum(kept) <= x.numel() + 4 * 4 * 64 * 64


@pytest.mark.parametrize("name", ["isice", "isice_mlp"])
def test_a_preset_in_a_spec(name):
    layer = create_pooling(f"{name}(preset='paper')", 8)
    assert (layer.normalize, layer.n_inverse_iter) == ("trace", 7)
    assert repr(create_pooling(repr(layer), 8)) == repr(layer)
    assert "preset" not in repr(layer)


@pytest.mark.parametrize("option", [("normalize", "sqrt_trace"), ("n_inverse_iter", 3), ("first_gradient", "printed")])
def test_an_option_that_contradicts_its_preset_is_an_error(option):
    name, value = option
    with pytest.raises(ValueError, match=r"isice: expected .* with preset='paper', got .*; leave one of them out"):
        create_pooling(f"isice(preset='paper', {name}={value!r})", 8)
    with pytest.raises(ValueError, match=r"isice: expected .* with preset='paper'"):
        F.isice(torch.eye(4), preset="paper", **{name: value})


def test_iteration_counts_are_keywords_and_covariance_takes_a_backend():
    for function in (F.newton_schulz_sqrt, F.newton_schulz_inverse_sqrt, F.newton_schulz_inverse, F.frobenius_sqrt):
        with pytest.raises(TypeError, match="positional argument"):
            function(torch.eye(4), 5)
    x = torch.rand(2, 4, 3, 3)
    assert torch.equal(F.covariance(x, backend="torch"), F.covariance(x))
    with pytest.raises(RuntimeError, match="covariance: expected to run on Triton kernels, but the tensor is on cpu"):
        F.covariance(x, backend="triton")
    with pytest.raises(ValueError, match="covariance: expected backend to be one of"):
        F.covariance(x, backend="cuda")
