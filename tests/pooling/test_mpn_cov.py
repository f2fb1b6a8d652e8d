import pytest
import torch

from isice.pooling import create_pooling


def features(height: int) -> torch.Tensor:
    return torch.randn(2, 6, height, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("power", [0.5, 0.3, 1.0])
def test_equals_the_literal_formula(power: float) -> None:
    x = features(10)
    for image, vector in zip(x.flatten(2), create_pooling(f"mpn_cov(power={power})", 6)(x), strict=True):
        values, vectors = torch.linalg.eigh(torch.cov(image, correction=0))
        matrix = sum(value**power * torch.outer(u, u) for value, u in zip(values, vectors.T, strict=True))
        torch.testing.assert_close(vector, matrix[tuple(torch.triu_indices(6, 6))])


def test_power_one_half_equals_the_converged_isqrt_cov() -> None:
    x = features(10)
    expected = create_pooling("isqrt_cov(n_iter=30)", 6)(x)
    torch.testing.assert_close(create_pooling("mpn_cov", 6)(x), expected, rtol=1e-8, atol=1e-10)


def test_gradient_equals_that_of_the_converged_isqrt_cov() -> None:
    gradients = []
    for spec in ("mpn_cov", "isqrt_cov(n_iter=30)"):
        x = features(10).requires_grad_()
        vector = create_pooling(spec, 6)(x)
        (vector * torch.linspace(-1, 1, 21, dtype=torch.float64)).sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-7, atol=1e-9)


def test_repeated_eigenvalues_have_the_gradient_of_their_neighbourhood() -> None:
    # Centred orthogonal channels of equal variance: Σ = I/6, all eigenvalues coincide.
    eye = torch.eye(6, dtype=torch.float64)
    x = torch.cat((eye, -eye), dim=1)[None, :, :, None].requires_grad_()
    assert torch.autograd.gradcheck(create_pooling("mpn_cov", 6), (x,))
