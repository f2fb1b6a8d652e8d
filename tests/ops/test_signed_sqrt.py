"""Signed square root and ℓ2 normalisation: values, slopes at zero, precision."""

import math

import pytest
import torch

from isice.ops.signed_sqrt import l2_normalize, signed_sqrt, signed_sqrt_reference


def test_equals_the_published_form():
    x = torch.linspace(-3, 3, 101, dtype=torch.float64)
    torch.testing.assert_close(signed_sqrt(x), signed_sqrt_reference(x), rtol=1e-12, atol=1e-15)
    loop = [math.sqrt(max(v, 0) + 1e-5) - math.sqrt(max(-v, 0) + 1e-5) for v in x.tolist()]
    torch.testing.assert_close(signed_sqrt(x), torch.tensor(loop, dtype=torch.float64), rtol=1e-12, atol=1e-15)


def test_approaches_the_signed_root():
    x = torch.tensor([-100.0, -2.0, 0.5, 7.0], dtype=torch.float64)
    torch.testing.assert_close(signed_sqrt(x, eps=1e-14), x.sign() * x.abs().sqrt(), rtol=0, atol=2e-7)


def test_slope_is_bounded_and_largest_at_zero():
    x = torch.tensor([0.0, 1e-30, -1e-30, 1e-8, -1e-3, 5.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(signed_sqrt(x).sum(), x)
    bound = 1 / (2 * math.sqrt(1e-5))
    assert slope[0] == pytest.approx(bound)
    assert (slope <= bound * (1 + 1e-12)).all()
    assert (slope > 0).all()


def test_keeps_digits_of_tiny_values_in_float32():
    tiny = torch.tensor([1e-12, -3e-11])
    exact = signed_sqrt(tiny.double())
    torch.testing.assert_close(signed_sqrt(tiny).double(), exact, rtol=1e-6, atol=0)


def test_gradcheck():
    x = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: l2_normalize(signed_sqrt(x)), x)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_l2_normalize_gives_unit_vectors(dim):
    x = torch.randn(3, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        l2_normalize(x, dim=dim), x / (x * x).sum(dim, keepdim=True) ** 0.5, rtol=1e-10, atol=1e-12
    )


def test_zero_vector_is_finite_with_bounded_gradient():
    x = torch.zeros(2, 5, requires_grad=True)
    value = l2_normalize(x)
    (grad,) = torch.autograd.grad(value.sum(), x)
    assert torch.equal(value, torch.zeros(2, 5))
    assert grad.abs().max() <= 1e6 * (1 + 1e-5)


@pytest.mark.parametrize("function", [signed_sqrt, l2_normalize])
def test_half_precision_comes_back_as_float32_and_double_as_double(function):
    x = torch.rand(2, 3)
    assert function(x.bfloat16()).dtype == torch.float32
    assert function(x.double()).dtype == torch.float64


@pytest.mark.parametrize("function", [signed_sqrt, l2_normalize])
def test_bad_arguments_are_named(function):
    with pytest.raises(ValueError, match=f"{function.__name__}: expected a finite eps > 0"):
        function(torch.rand(2), eps=0.0)
