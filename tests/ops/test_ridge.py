import pytest
import torch
from sklearn.covariance import LedoitWolf

import isice.functional as F
from isice.ops.ridge import newton_inverse, newton_steps, ridge_inverse_reference, saturate_reference

from .conftest import symmetric


def test_ridge_inverse_is_that_of_the_shrunk_covariance_of_scikit_learn(generator):
    mix = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    x = mix @ torch.randn(3, 6, 20, generator=generator, dtype=torch.float64)
    inverse = F.ridge_inverse(F.covariance(x), F.shrinkage_ridge(x, "ledoit_wolf"))
    expected = torch.stack([torch.from_numpy(LedoitWolf().fit(image.T.numpy()).precision_) for image in x])
    torch.testing.assert_close(F.partial_correlation(inverse), F.partial_correlation(expected), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("ridge", [0.5, 10.0, torch.tensor(2.0), torch.tensor([0.1, 3.0], dtype=torch.float64)])
def test_ridge_inverse(ridge, make_cov):
    cov = make_cov(2, 5)
    torch.testing.assert_close(F.ridge_inverse(cov, ridge), ridge_inverse_reference(cov, ridge))
    weight = torch.as_tensor(ridge, dtype=torch.float64).requires_grad_()
    cov = cov.requires_grad_()
    assert torch.autograd.gradcheck(lambda a, r: F.ridge_inverse(symmetric(a), r), (cov, weight))
    assert torch.autograd.gradgradcheck(lambda a, r: F.ridge_inverse(symmetric(a), r), (cov, weight))


def test_ridge_inverse_of_singular_and_zero_matrices(make_cov):
    cov = torch.cat([make_cov(1, 8, samples=3, dtype=torch.float32), torch.zeros(1, 8, 8)]).requires_grad_()
    inverse = F.ridge_inverse(cov, 0.5)
    inverse.sum().backward()
    assert inverse.isfinite().all()
    assert cov.grad.isfinite().all()
    torch.testing.assert_close(inverse[1], torch.eye(8) / 1.5)


def spectra(size):
    """Eigenvalues with mean one: flat, one direction, a strong one, a power law, half zero."""
    ranks = torch.arange(1, size + 1, dtype=torch.float64)
    one = (ranks == 1).double() * size
    families = [torch.ones_like(ranks), one, 0.4 * one + 0.6, ranks**-1.5, (ranks <= size // 2).double()]
    return torch.stack([values * size / values.sum() for values in families])


@pytest.mark.parametrize("ridge", [0.01, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("size", [8, 64])
def test_newton_converges_for_every_spectrum(ridge, size, generator):
    vectors = torch.linalg.qr(torch.randn(5, size, size, generator=generator, dtype=torch.float64))[0]
    values = spectra(size)
    shifted = (vectors * (values + ridge)[:, None, :]) @ vectors.mT
    exact = (vectors / (values + ridge)[:, None, :]) @ vectors.mT
    n_iter = newton_steps(ridge, size)
    for dtype, tolerance in ((torch.float64, 2e-7), (torch.float32, 2e-6 + 1e-7 * size / ridge)):
        error = newton_inverse(shifted.to(dtype), ridge, n_iter).double() - exact
        assert (error.norm(dim=(1, 2)) <= tolerance * exact.norm(dim=(1, 2))).all()
    if ridge < 100:  # and no step could be left out
        short = newton_inverse(shifted, ridge, n_iter - 1) - exact
        assert (short.norm(dim=(1, 2)) > 1e-7 * exact.norm(dim=(1, 2))).any()


def test_newton_with_a_ridge_per_matrix(make_cov):
    ridge = torch.tensor([0.01, 5.0], dtype=torch.float64)
    cov = make_cov(2, 6)
    shifted = 6 * cov / cov.diagonal(dim1=1, dim2=2).sum(1)[:, None, None]
    shifted = shifted + ridge[:, None, None] * torch.eye(6, dtype=torch.float64)
    inverse = newton_inverse(shifted, ridge[:, None, None], newton_steps(1e-3, 6))
    torch.testing.assert_close(inverse, torch.linalg.inv(shifted), rtol=1e-6, atol=1e-7)


def test_shrink(make_cov):
    cov = make_cov(2, 5)
    total = cov.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None]
    torch.testing.assert_close(F.shrink(cov, 2.0), cov + 2.0 * total * torch.eye(5, dtype=torch.float64))
    weight = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, r: F.shrink(symmetric(a), r), (cov.requires_grad_(), weight))


@pytest.mark.parametrize("kind", ["ratio", "log"])
@pytest.mark.parametrize("power", [1.0, 0.7])
def test_saturate(kind, power, make_cov):
    cov = make_cov(2, 5)
    expected = saturate_reference(cov, 2.0, kind, power)
    torch.testing.assert_close(F.saturate(cov, 2.0, kind=kind, power=power), expected, rtol=1e-9, atol=1e-10)
    assert torch.autograd.gradcheck(
        lambda a: F.saturate(symmetric(a), 2.0, kind=kind, power=power), cov.requires_grad_()
    )
    ridge = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda r: F.saturate(cov.detach(), r, kind=kind, power=power), ridge)


def test_the_square_root_of_saturate_is_close_to_the_exact_one(make_cov):
    cov = make_cov(2, 5, samples=400)
    close, exact = F.saturate(cov, 1.0, power=0.5), saturate_reference(cov, 1.0, power=0.5)
    torch.testing.assert_close(close, exact, rtol=0.05, atol=0.02)
    assert torch.autograd.gradcheck(lambda a: F.saturate(symmetric(a), 1.0, power=0.5), cov.requires_grad_())


def test_saturate_by_ratio_is_the_partial_correlation_up_to_its_diagonal(make_cov):
    cov = make_cov(2, 5)
    mapped = F.saturate(cov, 3.0)
    rest = (1 - mapped.diagonal(dim1=-2, dim2=-1)).sqrt()
    partial = F.partial_correlation(F.ridge_inverse(cov, 3.0))
    off_diagonal = ~torch.eye(5, dtype=torch.bool)
    expected = mapped / (rest[:, :, None] * rest[:, None, :])
    torch.testing.assert_close(partial[:, off_diagonal], expected[:, off_diagonal])


def test_errors():
    with pytest.raises(ValueError, match="ridge_inverse: expected a finite ridge > 0"):
        F.ridge_inverse(torch.eye(2), 0.0)
    with pytest.raises(ValueError, match=r"expected ridge to be a number or of shape \(3,\)"):
        F.ridge_inverse(torch.eye(2).expand(3, 2, 2), torch.ones(2))
    with pytest.raises(ValueError, match="expected kind to be one of 'ratio', 'log'"):
        F.saturate(torch.eye(2), 1.0, kind="tanh")


def test_a_ridge_below_rounding_error_says_so():
    cov = torch.ones(64, 64) / 3
    assert F.ridge_inverse(cov, 1e-3).isfinite().all()
    for inverse in (
        lambda: F.ridge_inverse(cov, 1e-9),
        lambda: F.regularized_precision(cov, method="ridge", ridge=1e-9),
    ):
        with pytest.raises(
            torch.linalg.LinAlgError, match="ridge_inverse: expected finite matrices and a ridge beyond"
        ):
            inverse()
