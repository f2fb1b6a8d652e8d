"""The contract of pooling layers as a function, for layers of your own."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .pooling import Pooling, create_pooling


def check_pooling(layer: Pooling, *, trace: bool = True) -> None:
    """Check a pooling layer against the contract that models, training and export rely on.

    The checks of :data:`POOLING_CHECKS` run on copies of the layer and are reported together.

    Args:
        layer: A registered layer, for 2 to 32 channels to be quick.
        trace: Also compile and export it.

    Raises:
        AssertionError: Some checks failed.

    Example:
        >>> check_pooling(create_pooling("isqrt_cov(n_iter=2)", 4), trace=False)
    """
    if not isinstance(layer, Pooling):
        raise TypeError(f"check_pooling: expected a layer, got {layer!r}; pass an object such as MyPooling(8).")
    skipped = () if trace else ("compiles", "exports")
    checks = {name: check for name, check in POOLING_CHECKS.items() if name not in skipped}
    failures = []
    for name, check in checks.items():
        try:
            check(copy.deepcopy(layer))
        except Exception as error:
            failures.append(f"{name}: {type(error).__name__}: {error}")
    if failures:
        listed = "\n- ".join(failures)
        raise AssertionError(
            f"check_pooling: expected {layer.name} to pass {len(checks)} checks, {len(failures)} failed:\n- {listed}"
        )


def random_features(layer: Pooling, *shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return rectified Gaussian features (B, C, H, W) for the channels of a layer.

    Args:
        layer: The layer.
        *shape: B, H and W.
        seed: Seed of the values.
        dtype: Their dtype.
    """
    batch, height, width = shape
    generator = torch.Generator().manual_seed(seed)
    full = (batch, layer.in_channels, height, width)
    return torch.randn(full, generator=generator, dtype=torch.float64).relu().to(dtype)


def value_and_gradient(layer: Callable[[Tensor], Any], x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output of a layer and the gradient of a weighted sum of it."""
    x = x.clone().requires_grad_()
    value = layer(x)
    return value.detach(), torch.autograd.grad((value * _weights(value)).sum(), x)[0]


def degenerate_maps(layer: Pooling) -> dict[str, Tensor]:
    """Return feature maps on which covariances are singular, zero or badly scaled, by name."""
    channels, x = layer.in_channels, random_features(layer, 3, 5, 5)
    duplicate, dead = x.clone(), x.clone()
    duplicate[:, -1] = duplicate[:, 0]
    dead[:, ::2] = 0
    levels = torch.linspace(0, 1, channels)[None, :, None, None]
    return {
        "rank-deficient": random_features(layer, 3, 2, 3),
        "one position": random_features(layer, 3, 1, 1),
        "constant": torch.full((3, channels, 4, 4), 0.7),
        "constant per channel": levels.expand(3, -1, 4, 4).contiguous(),
        "duplicate channels": duplicate,
        "dead channels": dead,
        "one live channel": torch.cat([x[:, :1], torch.zeros_like(x[:, 1:])], dim=1),
        "all zero": torch.zeros(3, channels, 4, 4),
        "tiny": 1e-6 * x,
        "large": 1e4 * x,
        "offset": x + 100,
    }


def _weights(value: Tensor) -> Tensor:
    return torch.linspace(-1, 1, value.numel(), dtype=value.dtype).reshape(value.shape)


def _again(layer: Pooling) -> Pooling:
    classes = layer.out_features if layer.needs_num_classes else None
    return create_pooling(layer.spec, layer.in_channels, num_classes=classes)


def _has_its_shape(layer: Pooling) -> None:
    for height, width in [(1, 1), (3, 3), (4, 7), (9, 2)]:
        found = layer(random_features(layer, 2, height, width))
        assert isinstance(found, Tensor), f"expected a tensor, got {type(found).__name__}"
        expected = (2, layer.out_features)
        assert found.shape == expected, f"expected {expected} at {height}×{width}, got {tuple(found.shape)}"


def _takes_an_empty_batch(layer: Pooling) -> None:
    found = tuple(layer(random_features(layer, 0, 3, 3)).shape)
    assert found == (0, layer.out_features), f"expected {(0, layer.out_features)}, got {found}"


def _has_symmetric_matrices(layer: Pooling) -> None:
    layer, x = layer.eval(), random_features(layer, 2, 5, 5)
    partial = layer.partial_correlations(x)
    for found in (one for one in (layer.matrix(x), partial) if one is not None):
        assert found.shape == (2, layer.in_channels, layer.in_channels), f"got {tuple(found.shape)}"
        torch.testing.assert_close(found, found.mT)
    if partial is not None:
        torch.testing.assert_close(partial.diagonal(dim1=1, dim2=2), torch.ones(2, layer.in_channels))


def _treats_each_image_alone(layer: Pooling) -> None:
    layer = layer.eval().double()
    x = random_features(layer, 3, 5, 5, dtype=torch.float64)
    alone = torch.cat([layer(image[None]) for image in x])
    torch.testing.assert_close(layer(x), alone, rtol=1e-6, atol=1e-8)


def _is_deterministic(layer: Pooling) -> None:
    x = random_features(layer, 2, 5, 5)
    layer.train()
    assert torch.equal(copy.deepcopy(layer)(x), copy.deepcopy(layer)(x)), "two equal layers differ in train mode"
    layer.eval()
    assert torch.equal(layer(x), layer(x)), "two calls differ in eval mode"


def _is_finite(layer: Pooling) -> None:
    for case, x in degenerate_maps(layer).items():
        for training in (True, False):
            value, gradient = value_and_gradient(copy.deepcopy(layer).train(training), x)
            assert value.isfinite().all(), f"the value is not finite for features that are: {case}"
            assert gradient.isfinite().all(), f"the gradient is not finite for features that are: {case}"


def _is_finite_up_to_1e18(layer: Pooling) -> None:
    cases = ("constant", "one live channel", "one position", "offset")
    maps = {"random": random_features(layer, 2, 5, 5)} | {case: degenerate_maps(layer)[case] for case in cases}
    for case, x in maps.items():
        for scale in (1e15, 1e18):
            own, large = copy.deepcopy(layer), (scale * x).clamp(max=1e18).requires_grad_()
            value, loss = own(large, return_loss=True)
            # A mean, because the value may be as large as a covariance, 1e36.
            ((value * _weights(value)).mean() + loss).backward()
            found = [value, large.grad, *(parameter.grad for parameter in own.parameters())]
            assert all(one is None or one.isfinite().all() for one in found), f"not finite at {scale:g}: {case}"


def _has_finite_gradients_in_float16(layer: Pooling) -> None:
    for scale in (0.0, 6e-8, 1e-6, 1e-4):
        x = (scale * random_features(layer, 2, 3, 3)).half()
        value, gradient = value_and_gradient(copy.deepcopy(layer), x)
        assert value.isfinite().all(), f"the value is not finite for float16 features of size {scale:g}"
        assert gradient.isfinite().all(), f"the gradient is not finite for float16 features of size {scale:g}"


def _has_gradients(layer: Pooling) -> None:
    x = random_features(layer, 3, 5, 5).requires_grad_()
    value, loss = layer(x, return_loss=True)
    ((value * _weights(value)).sum() + loss).backward()
    assert x.grad is not None, "the input has no gradient"
    assert x.grad.abs().sum() > 0, "the gradient of the input is zero"
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, f"parameter {name} has no gradient"
        assert parameter.grad.isfinite().all(), f"the gradient of {name} is not finite"


def _computes_in_float32(layer: Pooling) -> None:
    layer = layer.eval()
    for dtype in (torch.float16, torch.bfloat16):
        half = random_features(layer, 2, 5, 5).to(dtype)
        expected, expected_gradient = value_and_gradient(layer, half.float())
        with torch.autocast("cpu", dtype=dtype):
            value, gradient = value_and_gradient(lambda x, dtype=dtype: layer(x.to(dtype)), half.float())  # type: ignore[misc]
        assert value.dtype == torch.float32, f"expected float32 under autocast, got {value.dtype}"
        torch.testing.assert_close(value, expected, rtol=0, atol=0)
        scale = float(expected_gradient.abs().max())
        torch.testing.assert_close(gradient, expected_gradient, rtol=2e-2, atol=1e-2 * scale)


def _keeps_float64(layer: Pooling) -> None:
    layer = layer.eval()
    x = random_features(layer, 2, 5, 5, dtype=torch.float64)
    single = layer(x.float()).detach()
    double = layer.double()(x).detach()
    assert double.dtype == torch.float64, f"expected float64, got {double.dtype}"
    torch.testing.assert_close(single.double(), double, rtol=2e-3, atol=2e-3 * float(double.abs().max()))


def _restores_its_state(layer: Pooling) -> None:
    x = random_features(layer, 2, 5, 5)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.01)
    other = _again(layer)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(layer.eval()(x), other.eval()(x)), "a layer with the same state_dict gives other values"


def _has_a_spec(layer: Pooling) -> None:
    other = _again(layer)
    assert type(other) is type(layer), f"{layer.spec!r} makes a {type(other).__name__}"
    assert repr(other) == repr(layer) == layer.spec, f"{layer.spec!r} makes {other!r}"
    lengths = layer.out_features, other.out_features
    assert lengths[0] == lengths[1], f"{layer.spec!r} makes vectors of {lengths[1]} numbers instead of {lengths[0]}"


def _refuses_wrong_input(layer: Pooling) -> None:
    wrong = {
        "vectors": torch.rand(2, layer.in_channels),
        "another number of channels": torch.rand(2, layer.in_channels + 1, 3, 3),
        "integers": torch.ones(2, layer.in_channels, 3, 3, dtype=torch.long),
    }
    for case, x in wrong.items():
        message = ""
        try:
            layer(x)
        except (TypeError, ValueError) as error:
            message = str(error)
        assert message.startswith(f"{type(layer).name}: "), f"expected an error for {case}, got {message!r}"


def _compiles(layer: Pooling) -> None:
    torch.compiler.reset()
    x = random_features(layer, 2, 5, 5)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    value, gradient = value_and_gradient(compiled, x)
    expected, expected_gradient = value_and_gradient(layer, x)
    torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5)
    scale = float(expected_gradient.abs().max())
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-3, atol=1e-4 * scale)


def _exports(layer: Pooling) -> None:
    layer = layer.eval()
    shapes = ({0: torch.export.Dim("batch", min=1)},)
    program = torch.export.export(layer, (random_features(layer, 2, 5, 5),), dynamic_shapes=shapes)
    other = random_features(layer, 3, 5, 5, seed=1)
    torch.testing.assert_close(program.module()(other), layer(other), rtol=1e-4, atol=1e-5)


POOLING_CHECKS: dict[str, Callable[[Pooling], None]] = {
    "shape for any height and width": _has_its_shape,
    "empty batch": _takes_an_empty_batch,
    "symmetric matrices": _has_symmetric_matrices,
    "one image alone as in a batch": _treats_each_image_alone,
    "deterministic": _is_deterministic,
    "finite on degenerate features": _is_finite,
    "finite up to 1e18": _is_finite_up_to_1e18,
    "finite gradients in float16": _has_finite_gradients_in_float16,
    "gradients": _has_gradients,
    "float32 under autocast": _computes_in_float32,
    "float64": _keeps_float64,
    "state dict": _restores_its_state,
    "spec": _has_a_spec,
    "wrong input": _refuses_wrong_input,
    "compiles": _compiles,
    "exports": _exports,
}
"""The checks of :func:`check_pooling`, by name; each takes a layer that it may change."""
