import numpy as np
import pytest
import torch

import isice.functional as F

from .conftest import symmetric


def test_correlation_against_numpy(generator):
    x = torch.randn(5, 30, generator=generator, dtype=torch.float64)
    np.testing.assert_allclose(F.correlation(F.covariance(x)), np.corrcoef(x.numpy()), rtol=1e-12, atol=1e-14)


def test_partial_correlation_is_the_correlation_of_regression_residuals(generator):
    x = torch.randn(4, 200, generator=generator, dtype=torch.float64)
    x = x - x.mean(-1, keepdim=True)
    partial = F.partial_correlation(torch.linalg.inv(F.covariance(x)))
    others = x[2:].mT
    residuals = x[:2].mT - others @ torch.linalg.lstsq(others, x[:2].mT).solution
    np.testing.assert_allclose(partial[0, 1], np.corrcoef(residuals.numpy().T)[0, 1], rtol=1e-10)


def test_confounding():
    """x and y correlate only through z: correlation says yes, partial correlation says no."""
    precision = torch.tensor([[2.0, 0.0, -1.0], [0.0, 2.0, -1.0], [-1.0, -1.0, 2.0]], dtype=torch.float64)
    assert F.correlation(torch.linalg.inv(precision))[0, 1] > 0.3
    assert F.partial_correlation(precision)[0, 1] == 0


@pytest.mark.parametrize("function", [F.correlation, F.partial_correlation])
def test_unit_diagonal_and_dead_variables(function, make_cov):
    cov = make_cov(2, 5)
    cov[:, 3] = 0
    cov[:, :, 3] = 0
    value = function(cov)
    assert torch.equal(value.diagonal(dim1=-2, dim2=-1), torch.ones(2, 5, dtype=torch.float64))
    assert torch.equal(value[:, 3, :3], torch.zeros(2, 3, dtype=torch.float64))
    assert function(torch.zeros(3, 3)).equal(torch.eye(3))


@pytest.mark.parametrize("function", [F.correlation, F.partial_correlation])
def test_gradcheck(function, make_cov):
    cov = make_cov(2, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda a: function(symmetric(a)), cov)
    assert torch.autograd.gradgradcheck(lambda a: function(symmetric(a)), cov)


def test_regularized_precision(make_cov):
    cov = make_cov(2, 4)
    sigma = cov / cov.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    expected = torch.linalg.inv(4 * sigma + 0.5 * torch.eye(4, dtype=torch.float64))
    torch.testing.assert_close(F.regularized_precision(cov, method="ridge", ridge=0.5), expected)
    torch.testing.assert_close(F.regularized_precision(cov, n_iter=3), F.newton_schulz_inverse(sigma, n_iter=3))
    for method in ("ridge", "newton_schulz"):
        assert torch.autograd.gradcheck(
            lambda a, m=method: F.regularized_precision(symmetric(a), method=m, n_iter=2), cov.clone().requires_grad_()
        )


def test_errors():
    with pytest.raises(
        ValueError, match=r"expected method to be one of 'newton_schulz', 'ridge', got 'rigde'. Did you mean 'ridge'"
    ):
        F.regularized_precision(torch.eye(2), method="rigde")
