"""What the layers of the paper add to their operations: wiring, modulators, auxiliary losses."""

import pytest
import torch

import isice.functional as F
from isice.pooling import create_pooling


@pytest.fixture
def x():
    return torch.randn(3, 6, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).relu()


@pytest.mark.parametrize(
    ("spec", "operation"),
    [
        ("covariance", lambda cov: cov),
        ("isqrt_cov(n_iter=3)", lambda cov: F.newton_schulz_sqrt(cov, n_iter=3)),
        ("precision(n_inverse_iter=4)", lambda cov: F.newton_schulz_inverse(cov, n_iter=4)),
        (
            "isice(sparsity=0.2, n_iter=3, normalize='trace')",
            lambda cov: F.isice(cov, sparsity=0.2, n_iter=3, normalize="trace"),
        ),
        (
            "partial_correlation(ridge=1, center=True, scale=3.0)",
            lambda cov: 3 * F.partial_correlation(F.regularized_precision(cov, method="ridge")),
        ),
    ],
)
def test_a_layer_is_its_operation_vectorized(spec, operation, x):
    layer = create_pooling(spec, 6)
    expected = operation(F.covariance(x))
    torch.testing.assert_close(layer.matrix(x), expected)
    torch.testing.assert_close(layer(x), F.vectorize(expected))


@pytest.mark.parametrize("name", ["isice_mlp", "isice_mlp_star"])
def test_fresh_modulators_are_a_constant(name, x):
    """Modulators start at one for every image, so the layer is iSICE."""
    layer = create_pooling(name, 6).double()
    value, loss = layer(x, return_loss=True)
    torch.testing.assert_close(value, create_pooling("isice", 6)(x))
    torch.testing.assert_close(loss, torch.zeros((), dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close(layer(x), value)


@pytest.mark.parametrize("name", ["isice_mlp", "isice_mlp_star"])
def test_modulators_differ_by_image_and_learn(name, x):
    layer = create_pooling(f"{name}(gamma=1.0)", 6).double()
    torch.nn.init.normal_(layer.modulators.weight, generator=torch.Generator().manual_seed(0))
    value, loss = layer(x, return_loss=True)
    assert loss > 0
    (value.square().sum() + loss).backward()
    assert (layer.modulators.weight.grad.abs().sum(dim=1) > 0).all()


def test_star_uses_the_gradient(x):
    layer = create_pooling("isice_mlp_star(step_size=5.0)", 6).double()
    before = layer(x)
    with torch.no_grad():
        layer.modulators.weight[0, 6:] = 1.0
    assert not torch.allclose(layer(x), before)
    diagonal = create_pooling("isice_mlp_star(step_size=5.0, summary='diagonal')", 6).double()
    diagonal.load_state_dict(layer.state_dict())
    assert not torch.allclose(layer(x), diagonal(x))


def test_no_steps_need_no_modulators(x):
    layer = create_pooling("isice_mlp_star(n_iter=0)", 6).double()
    value, loss = layer(x, return_loss=True)
    torch.testing.assert_close(value, create_pooling("isice(n_iter=0)", 6)(x))
    assert loss == 0
