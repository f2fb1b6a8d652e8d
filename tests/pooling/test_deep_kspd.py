import math

import pytest
import torch

from isice.ops.vectorize import unvectorize
from isice.pooling import create_pooling

X = torch.randn(2, 5, 6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_the_matrix_exponential_is_the_kernel_matrix_entry_by_entry() -> None:
    vector = create_pooling("deep_kspd(theta=0.7, eps=0.01)", 5).double()(X)
    kernel = torch.linalg.matrix_exp(unvectorize(vector)) - 0.01 * torch.eye(5)
    for b in range(2):
        rows = X[b].flatten(1).tolist()
        for i in range(5):
            for j in range(5):
                distance = sum((p - q) ** 2 for p, q in zip(rows[i], rows[j], strict=True))
                assert kernel[b, i, j].item() == pytest.approx(math.exp(-0.7 * distance / 30), abs=1e-6)


def test_theta_starts_where_asked_and_learns() -> None:
    layer = create_pooling("deep_kspd(theta=0.3)", 5)
    theta = torch.nn.functional.softplus(layer.raw_theta)
    assert theta.item() == pytest.approx(0.3, rel=1e-6)
    layer(X.float()).sum().backward()
    assert layer.raw_theta.grad.abs() > 0


def test_init_from_brings_the_mean_exponent_to_one() -> None:
    layer = create_pooling("deep_kspd", 5)
    layer.init_from(4 * X.float())
    flat = 4 * X.float().flatten(2)
    distances = (flat[:, :, None] - flat[:, None]).square().mean(dim=-1)
    mean = distances.sum() / (2 * 5 * 4)
    assert (torch.nn.functional.softplus(layer.raw_theta) * mean).item() == pytest.approx(1, rel=1e-3)


def test_gradient_with_equal_channels_by_finite_differences() -> None:
    x = X[:1, :, :2, :2].clone()
    x[:, 1] = x[:, 0]
    layer = create_pooling("deep_kspd(eps=0.1)", 5).double()
    assert torch.autograd.gradcheck(layer, (x.requires_grad_(),), atol=1e-4)
