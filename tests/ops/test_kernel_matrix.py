import math

import pytest
import torch

from isice.ops.kernel_matrix import gaussian_kernel_matrix, squared_distances


def features(offset: float = 0.0) -> torch.Tensor:
    return offset + torch.randn(2, 5, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_kernel_matrix_entry_by_entry() -> None:
    x, theta = features(), 0.7
    kernel = gaussian_kernel_matrix(x, theta)
    for b in range(2):
        for i in range(5):
            for j in range(5):
                distance = sum((x[b, i, r, c] - x[b, j, r, c]).item() ** 2 for r in range(3) for c in range(4))
                assert kernel[b, i, j].item() == pytest.approx(math.exp(-theta * distance / 12))


def test_a_large_common_offset_costs_no_digits() -> None:
    near, far = squared_distances(features()), squared_distances(features(1000.0).float()).double()
    torch.testing.assert_close(far, near, rtol=1e-3, atol=1e-3)


def test_equal_channels_give_ones_and_finite_gradients() -> None:
    x = torch.ones(1, 4, 3, 3, requires_grad=True)
    kernel = gaussian_kernel_matrix(x, 1.0)
    assert torch.equal(kernel, torch.ones(1, 4, 4))
    kernel.sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x))


def test_gradients_of_features_and_width() -> None:
    x, theta = features().requires_grad_(), torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(gaussian_kernel_matrix, (x, theta))


def test_a_width_is_positive() -> None:
    with pytest.raises(ValueError, match="gaussian_kernel_matrix: expected a finite theta > 0"):
        gaussian_kernel_matrix(torch.rand(2, 3, 4), -1.0)
