"""The contract of the pooling layers, over the registry: a new layer is covered by its file."""

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from isice._specs import format_spec, parse_spec, split_sum
from isice.pooling import create_pooling, list_poolings
from isice.testing import POOLING_CHECKS, value_and_gradient

CHANNELS = 8
POOLINGS = list_poolings()


def make(name, channels=CHANNELS):
    torch.manual_seed(0)
    return create_pooling(name, channels, num_classes=5)


def make_with_few_steps(name):
    """Create a layer with two steps of each iteration, because tracing unrolls the steps."""
    parts = []
    for factor, part in split_sum(name):
        plain, options = parse_spec(part)
        few = dict.fromkeys({"n_iter", "n_inverse_iter"}.intersection(make(part).option_defaults()), 2)
        spec = format_spec(plain, options | few)
        parts.append(spec if factor == 1 else f"{factor} * {spec}")
    with warnings.catch_warnings(action="ignore"):  # of steps that the default options do not use
        return make(" + ".join(parts))


@pytest.mark.parametrize("check", POOLING_CHECKS)
@pytest.mark.parametrize("name", POOLINGS)
def test_contract(name, check):
    POOLING_CHECKS[check](make_with_few_steps(name) if check in ("compiles", "exports") else make(name))


@pytest.mark.parametrize("name", POOLINGS)
@settings(max_examples=12, deadline=None)
@given(x=hnp.arrays("float32", (2, CHANNELS, 2, 3), elements=st.floats(-1e3, 1e3, width=32)))
def test_finite_for_any_finite_features(name, x):
    value, gradient = value_and_gradient(make(name), torch.from_numpy(x))
    assert value.isfinite().all()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", POOLINGS)
@pytest.mark.parametrize("case", ["offset", "scale"])
def test_batch_does_not_matter_for_large_features(name, case):
    # Products with a vector round differently by batch size from about 64 channels on.
    x = torch.randn(4, 64, 14, 14, generator=torch.Generator().manual_seed(0)).relu()
    x = x + 1000 if case == "offset" else 1e4 * x
    layer = make(name, 64).eval()
    with torch.no_grad():
        together, alone = layer(x), torch.cat([layer(image[None]) for image in x])
    assert (together - alone).abs().max() <= 1e-5 * alone.abs().max()


# torch generates the autograd Function of a torch.library operator, without a setup_context.
WITHOUT_TORCH_FUNC = {"sice": "setup_context"}


@pytest.mark.parametrize("name", POOLINGS)
def test_gradients_per_sample_by_torch_func(name):
    layer = make(name).double().eval()
    x = torch.rand(3, CHANNELS, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parameters, buffers = dict(layer.named_parameters()), dict(layer.named_buffers())

    def loss(parameters, image):
        out = torch.func.functional_call(layer, (parameters, buffers), (image[None],))
        return (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype)).sum()

    per_sample = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)), in_dims=(None, 0))
    if name in WITHOUT_TORCH_FUNC:
        with pytest.raises(RuntimeError, match=WITHOUT_TORCH_FUNC[name]):
            per_sample(parameters, x)
        return
    of_parameters, of_images = per_sample(parameters, x)
    for i, image in enumerate(x):
        image = image.clone().requires_grad_()
        loss(parameters, image).backward()
        torch.testing.assert_close(of_images[i], image.grad, rtol=1e-6, atol=1e-8)
        for key, parameter in parameters.items():
            expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            torch.testing.assert_close(of_parameters[key][i], expected, rtol=1e-6, atol=1e-8)
        layer.zero_grad()


@pytest.mark.parametrize("name", POOLINGS)
def test_unknown_option_is_an_error_with_the_known_ones(name):
    with pytest.raises(TypeError, match=f"{name}: expected options among .*, got 'no_such_option'"):
        create_pooling(f"{name}(no_such_option=1)", CHANNELS, num_classes=5)


@pytest.mark.parametrize("name", POOLINGS)
def test_boolean_options_are_true_or_false(name):
    for option, default in make(name).option_defaults().items():
        if isinstance(default, bool):
            with pytest.raises(TypeError, match=f"{name}: expected {option} to be True or False, got 'no'"):
                create_pooling(f"{name}({option}='no')", CHANNELS, num_classes=5)


@pytest.mark.parametrize("name", POOLINGS)
def test_states_its_source(name):
    layer = make(name)
    assert layer.reference
    assert layer.fidelity in ("verified", "reconstructed", "original")
    assert layer.evidence
    assert bool(layer.assumed) == (layer.fidelity == "reconstructed")
