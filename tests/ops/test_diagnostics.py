import pytest
import torch

import isice.functional as F


def test_inverse_residual(make_cov):
    cov = make_cov(3, 5)
    assert (F.inverse_residual(cov, torch.linalg.inv(cov)) < 1e-10).all()
    torch.testing.assert_close(F.inverse_residual(cov, torch.zeros_like(cov)), torch.ones(3, dtype=torch.float64))


def test_seven_steps_do_not_converge_at_256(generator):
    """Far from an inverse: eigenvalues are capped at 2.25⁷ (docs/deviations.md)."""
    cov = F.covariance(torch.randn(1, 256, 196, generator=generator, dtype=torch.float64).relu())
    sigma = cov / cov.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    inverse = F.newton_schulz_inverse(sigma, n_iter=7)
    assert F.inverse_residual(sigma, inverse).item() > 0.3
    assert torch.linalg.eigvalsh(inverse).max() < 2.25**7 * (1 + 1e-6)


def test_zero_fraction():
    matrix = torch.eye(3)
    matrix[0, 1] = matrix[1, 0] = 0.1
    torch.testing.assert_close(F.zero_fraction(matrix), torch.tensor(4 / 6))
    assert F.zero_fraction(matrix, tol=0.1) == 1
    assert F.zero_fraction(torch.ones(2, 1, 1)).shape == (2,)


def test_sparsity_is_a_deprecated_alias_of_zero_fraction():
    with pytest.warns(DeprecationWarning, match="use zero_fraction"):
        assert F.sparsity(torch.eye(3), tol=0.1) == 1


def test_smallest_eigenvalue(make_cov):
    cov = make_cov(2, 6)
    torch.testing.assert_close(F.smallest_eigenvalue(cov), torch.linalg.eigvalsh(cov).min(-1).values)


def test_errors():
    with pytest.raises(ValueError, match="inverse_residual: expected matrices of one size"):
        F.inverse_residual(torch.eye(3), torch.eye(2))
    with pytest.raises(ValueError, match="zero_fraction: expected a finite tol ≥ 0"):
        F.zero_fraction(torch.eye(2), tol=-1.0)
