import numpy as np
import pytest
import torch

import isice.functional as F


def test_against_numpy(generator):
    x = torch.randn(3, 5, 11, generator=generator, dtype=torch.float64)
    expected = np.stack([np.cov(sample.numpy(), bias=True) for sample in x])
    np.testing.assert_allclose(F.covariance(x), expected, rtol=1e-12)


def test_shapes(generator):
    maps = torch.randn(2, 3, 5, 4, 6, generator=generator)
    cov = F.covariance(maps)
    assert cov.shape == (2, 3, 5, 5)
    torch.testing.assert_close(cov[1], F.covariance(maps[1]))
    torch.testing.assert_close(cov[1, 2], F.covariance(maps[1, 2].flatten(-2)))


def test_a_large_offset_costs_no_digits(generator):
    x = (torch.randn(4, 16, 196, generator=generator) + 100).float()
    exact = F.covariance(x.double())
    assert (F.covariance(x).double() - exact).norm() / exact.norm() <= 1e-5


def test_gradients(generator):
    x = torch.randn(2, 3, 2, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(F.covariance, x)
    assert torch.autograd.gradgradcheck(F.covariance, x)


def test_one_product_backward(generator):
    from torch.utils.flop_counter import FlopCounterMode

    x = torch.randn(2, 8, 32, generator=generator, requires_grad=True)
    cov = F.covariance(x)
    with FlopCounterMode(display=False) as counter:
        cov.sum().backward()
    assert counter.get_total_flops() == 2 * 2 * 8 * 8 * 32


@pytest.mark.parametrize("shape", [(3,), (2, 0, 4), (2, 3, 0), (2, 3, 0, 4)])
def test_bad_shapes(shape):
    with pytest.raises(ValueError, match=r"covariance: expected features .*, got \("):
        F.covariance(torch.zeros(shape))
