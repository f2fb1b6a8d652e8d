import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import isice.functional as F
from isice.ops.newton_schulz import newton_schulz_reference

from .conftest import symmetric

KINDS = {
    "sqrt": F.newton_schulz_sqrt,
    "inverse_sqrt": F.newton_schulz_inverse_sqrt,
    "inverse": F.newton_schulz_inverse,
}
POWERS = {"sqrt": 0.5, "inverse_sqrt": -0.5, "inverse": -1.0}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_iter", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [1, 5, 16])
def test_value_and_gradient_against_the_printed_algorithm(kind, n_iter, size, make_cov, generator):
    cov = make_cov(3, size).requires_grad_()
    weights = torch.randn(3, size, size, generator=generator, dtype=torch.float64)
    value, expected = KINDS[kind](cov, n_iter=n_iter), newton_schulz_reference(cov, n_iter, kind)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-13)
    gradient = torch.autograd.grad((value * weights).sum(), cov)[0]
    expected_gradient = symmetric(torch.autograd.grad((expected * weights).sum(), cov)[0])
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-10, atol=1e-11 * float(expected_gradient.norm()))


@pytest.mark.parametrize("kind", KINDS)
def test_converges_to_the_eigendecomposition(kind, make_cov):
    cov = make_cov(2, 6, samples=200)
    values, vectors = torch.linalg.eigh(cov)
    exact = (vectors * values.unsqueeze(-2) ** POWERS[kind]) @ vectors.mT
    torch.testing.assert_close(KINDS[kind](cov, n_iter=30), exact, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_gradcheck_first_and_second(kind, make_cov):
    cov = make_cov(2, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda a: KINDS[kind](symmetric(a), n_iter=3), cov)
    assert torch.autograd.gradgradcheck(lambda a: KINDS[kind](symmetric(a), n_iter=3), cov)


@pytest.mark.parametrize("kind", KINDS)
def test_leading_dimensions_and_one_matrix(kind, make_cov):
    cov = make_cov(2, 3, 5)
    value = KINDS[kind](cov)
    assert value.shape == cov.shape
    torch.testing.assert_close(value[1, 2], KINDS[kind](cov[1, 2]))


@pytest.mark.parametrize("kind", KINDS)
def test_exactly_symmetric_in_float32_on_singular_input(kind, make_cov):
    value = KINDS[kind](make_cov(2, 32, samples=10, dtype=torch.float32))
    assert torch.equal(value, value.mT)


def test_float32_accuracy_at_256_channels(generator):
    x = torch.randn(2, 256, 196, generator=generator).relu()
    single = F.covariance(x).requires_grad_()
    double = F.covariance(x.double()).requires_grad_()
    for function in KINDS.values():
        low, high = function(single), function(double)
        assert (low - high).norm() / high.norm() < 1e-5
        weights = torch.randn(high.shape, generator=generator, dtype=torch.float64)
        low_gradient = torch.autograd.grad((low * weights.float()).sum(), single)[0]
        high_gradient = torch.autograd.grad((high * weights).sum(), double)[0]
        assert (low_gradient - high_gradient).norm() / high_gradient.norm() < 2e-5


@settings(max_examples=60, deadline=None)
@given(
    x=hnp.arrays("float32", (4, 6), elements=st.floats(-1e4, 1e4, width=32)),
    kind=st.sampled_from(sorted(KINDS)),
    n_iter=st.integers(1, 9),
)
def test_finite_for_any_finite_features(x, kind, n_iter):
    features = torch.from_numpy(x)[None].requires_grad_()
    value = KINDS[kind](F.covariance(features), n_iter=n_iter)
    assert value.isfinite().all()
    assert torch.autograd.grad(value.sum(), features)[0].isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_errors(kind):
    name = f"newton_schulz_{kind}"
    with pytest.raises(ValueError, match=f"{name}: expected n_iter ≥ 1, got 0"):
        KINDS[kind](torch.eye(3), n_iter=0)
    with pytest.raises(TypeError, match=f"{name}: expected n_iter to be an integer, got 2.5"):
        KINDS[kind](torch.eye(3), n_iter=2.5)
