"""The contract of the pooling layers, one parametrised test over the registry: a new layer is covered by its file."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from isice._specs import format_spec, parse_spec
from isice.pooling import create_pooling, list_poolings

CHANNELS = 8
POOLINGS = list_poolings()


def make(name, channels=CHANNELS):
    torch.manual_seed(0)
    return create_pooling(name, channels, num_classes=5)


def make_with_few_steps(name):
    """Create a layer with two steps of each iteration, because tracing unrolls the steps."""
    if " + " in name:
        return make(name)
    plain, options = parse_spec(name)
    few = dict.fromkeys({"n_iter", "n_inverse_iter"}.intersection(make(name).option_names()), 2)
    return make(format_spec(plain, options | few))


def features(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).relu().to(dtype)


def value_and_gradient(layer, x):
    x = x.clone().requires_grad_()
    value = layer(x)
    weights = torch.linspace(-1, 1, value.numel(), dtype=value.dtype).reshape(value.shape)
    return value.detach(), torch.autograd.grad((value * weights).sum(), x)[0]


def degenerate_maps():
    x = features(3, CHANNELS, 5, 5)
    duplicate = x.clone()
    duplicate[:, 1] = duplicate[:, 0]
    dead = x.clone()
    dead[:, ::2] = 0
    return {
        "rank-deficient": features(3, CHANNELS, 2, 3),
        "one position": features(3, CHANNELS, 1, 1),
        "constant": torch.full((3, CHANNELS, 4, 4), 0.7),
        "constant per channel": torch.linspace(0, 1, CHANNELS)[None, :, None, None].expand(3, -1, 4, 4).contiguous(),
        "duplicate channels": duplicate,
        "dead channels": dead,
        "one live channel": torch.cat([x[:, :1], torch.zeros_like(x[:, 1:])], dim=1),
        "all zero": torch.zeros(3, CHANNELS, 4, 4),
        "tiny": 1e-6 * x,
        "large": 1e4 * x,
        "offset": x + 100,
    }


@pytest.mark.parametrize("name", POOLINGS)
class TestContract:
    def test_shape_for_any_height_and_width(self, name):
        layer = make(name)
        for height, width in [(1, 1), (3, 3), (4, 7), (9, 2)]:
            assert layer(features(2, CHANNELS, height, width)).shape == (2, layer.out_features)

    def test_matrix_and_partial_correlations_where_there_are_any(self, name):
        layer, x = make(name).eval(), features(2, CHANNELS, 5, 5)
        matrix, partial = layer.matrix(x), layer.partial_correlations(x)
        for found in (one for one in (matrix, partial) if one is not None):
            assert found.shape == (2, CHANNELS, CHANNELS)
            torch.testing.assert_close(found, found.mT)
        if partial is not None:
            torch.testing.assert_close(partial.diagonal(dim1=1, dim2=2), torch.ones(2, CHANNELS))

    def test_empty_batch(self, name):
        assert make(name)(features(0, CHANNELS, 3, 3)).shape == (0, make(name).out_features)

    def test_one_image_alone_is_the_same_image_in_a_batch(self, name):
        layer, x = make(name).eval(), features(3, CHANNELS, 5, 5, dtype=torch.float64)
        layer = layer.double()
        alone = torch.cat([layer(image[None]) for image in x])
        torch.testing.assert_close(layer(x), alone, rtol=1e-6, atol=1e-8)

    def test_deterministic_in_train_and_eval(self, name):
        layer, x = make(name), features(2, CHANNELS, 5, 5)
        layer.train()
        assert torch.equal(copy.deepcopy(layer)(x), copy.deepcopy(layer)(x))
        layer.eval()
        assert torch.equal(layer(x), layer(x))

    @pytest.mark.parametrize("case", degenerate_maps())
    @pytest.mark.parametrize("mode", ["train", "eval"])
    def test_finite_value_and_gradient(self, name, case, mode):
        layer = make(name).train(mode == "train")
        value, gradient = value_and_gradient(layer, degenerate_maps()[case])
        assert value.isfinite().all()
        assert gradient.isfinite().all()

    @settings(max_examples=12, deadline=None)
    @given(x=hnp.arrays("float32", (2, CHANNELS, 2, 3), elements=st.floats(-1e3, 1e3, width=32)))
    def test_finite_for_any_finite_features(self, name, x):
        value, gradient = value_and_gradient(make(name), torch.from_numpy(x))
        assert value.isfinite().all()
        assert gradient.isfinite().all()

    def test_gradient_reaches_input_and_parameters(self, name):
        layer, x = make(name), features(3, CHANNELS, 5, 5).requires_grad_()
        value, loss = layer(x, return_loss=True)
        weights = torch.linspace(-1, 1, value.numel()).reshape(value.shape)
        ((value * weights).sum() + loss).backward()
        assert x.grad.abs().sum() > 0
        for parameter_name, parameter in layer.named_parameters():
            assert parameter.grad is not None, parameter_name
            assert parameter.grad.isfinite().all(), parameter_name

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_float32_inside_whatever_the_autocast_dtype(self, name, dtype):
        layer, half = make(name).eval(), features(2, CHANNELS, 5, 5).to(dtype)
        expected, expected_gradient = value_and_gradient(layer, half.float())
        x = half.float().requires_grad_()
        with torch.autocast("cpu", dtype=dtype):
            value = layer(x.to(dtype))
            weights = torch.linspace(-1, 1, value.numel()).reshape(value.shape)
            gradient = torch.autograd.grad((value * weights).sum(), x)[0]
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, expected, rtol=0, atol=0)
        torch.testing.assert_close(
            gradient, expected_gradient, rtol=2e-2, atol=1e-2 * float(expected_gradient.abs().max())
        )

    def test_float64_stays_float64(self, name):
        layer, x = make(name).eval(), features(2, CHANNELS, 5, 5, dtype=torch.float64)
        single = layer(x.float()).detach()
        double = layer.double()(x).detach()
        assert double.dtype == torch.float64
        torch.testing.assert_close(single.double(), double, rtol=2e-3, atol=2e-3 * float(double.abs().max()))

    def test_state_dict_round_trip(self, name):
        layer, x = make(name), features(2, CHANNELS, 5, 5)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.add_(0.01)
        torch.manual_seed(1)
        other = create_pooling(name, CHANNELS, num_classes=5)
        other.load_state_dict(layer.state_dict())
        assert torch.equal(layer.eval()(x), other.eval()(x))

    def test_repr_parses_back(self, name):
        layer = make(name)
        again = create_pooling(repr(layer), CHANNELS, num_classes=5)
        assert repr(again) == repr(layer)
        assert again.out_features == layer.out_features
        assert type(again) is type(layer)

    def test_unknown_option_is_an_error_with_the_known_ones(self, name):
        with pytest.raises(TypeError, match=f"{name}: expected options among .*, got 'no_such_option'"):
            create_pooling(f"{name}(no_such_option=1)", CHANNELS, num_classes=5)

    def test_wrong_input_is_an_error_that_names_the_layer(self, name):
        layer = make(name)
        with pytest.raises(ValueError, match=rf"{name}: expected a feature map \(B, C, H, W\), got \(2, 8\)"):
            layer(torch.rand(2, CHANNELS))
        with pytest.raises(ValueError, match=f"{name}: expected {CHANNELS} channels, got 7"):
            layer(torch.rand(2, 7, 3, 3))
        with pytest.raises(TypeError, match=f"{name}: expected a floating-point tensor"):
            layer(torch.ones(2, CHANNELS, 3, 3, dtype=torch.long))

    def test_states_its_source(self, name):
        layer = make(name)
        assert layer.reference
        assert layer.fidelity in ("verified", "reconstructed", "original")
        assert layer.evidence
        assert bool(layer.assumed) == (layer.fidelity == "reconstructed")

    def test_export_with_a_free_batch_size(self, name):
        layer, x = make_with_few_steps(name).eval(), features(2, CHANNELS, 5, 5)
        program = torch.export.export(layer, (x,), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},))
        other = features(3, CHANNELS, 5, 5, seed=1)
        torch.testing.assert_close(program.module()(other), layer(other), rtol=1e-4, atol=1e-5)

    def test_compile_without_graph_breaks(self, name):
        torch.compiler.reset()
        layer, x = make_with_few_steps(name), features(2, CHANNELS, 5, 5)
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        value, gradient = value_and_gradient(compiled, x)
        expected, expected_gradient = value_and_gradient(layer, x)
        scale = float(expected_gradient.abs().max())
        torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-3, atol=1e-4 * scale)
