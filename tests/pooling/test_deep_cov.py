import pytest
import torch

from isice.pooling import create_pooling

X = torch.randn(2, 5, 6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize(("function", "scalar"), [("power", lambda v: v**0.5), ("log", lambda v: v.log())])
def test_equals_the_literal_formula(function: str, scalar) -> None:
    layer = create_pooling(f"deep_cov(function='{function}', eps=0.01)", 5)
    for image, vector in zip(X.flatten(2), layer(X), strict=True):
        values, vectors = torch.linalg.eigh(torch.cov(image, correction=0) + 0.01 * torch.eye(5))
        matrix = sum(scalar(value) * torch.outer(u, u) for value, u in zip(values, vectors.T, strict=True))
        torch.testing.assert_close(vector, matrix[tuple(torch.triu_indices(5, 5))])


@pytest.mark.parametrize("function", ["power", "log"])
def test_gradient_on_a_singular_covariance_by_finite_differences(function: str) -> None:
    x = X[:1, :, :1, :3].clone().requires_grad_()  # three positions, rank two
    assert torch.autograd.gradcheck(create_pooling(f"deep_cov(function='{function}', eps=0.01)", 5), (x,), atol=1e-5)


def test_power_without_ridge_is_mpn_cov() -> None:
    torch.testing.assert_close(create_pooling("deep_cov(eps=0.0)", 5)(X), create_pooling("mpn_cov", 5)(X))
