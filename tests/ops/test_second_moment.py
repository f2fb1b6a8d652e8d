import pytest
import torch

from isice.ops.covariance import covariance
from isice.ops.second_moment import quadratic_forms, second_moment


def test_second_moment_is_the_mean_of_outer_products() -> None:
    x = torch.randn(2, 5, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = torch.zeros(2, 5, 5, dtype=torch.float64)
    for b in range(2):
        for row in range(3):
            for column in range(4):
                expected[b] += torch.outer(x[b, :, row, column], x[b, :, row, column]) / 12
    torch.testing.assert_close(second_moment(x), expected)


def test_second_moment_is_covariance_plus_the_outer_product_of_the_mean() -> None:
    x = torch.randn(2, 5, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mean = x.mean(dim=(-2, -1))
    torch.testing.assert_close(second_moment(x), covariance(x) + mean[:, :, None] * mean[:, None])


def test_quadratic_forms_one_by_one() -> None:
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(2, 4, 4, generator=generator, dtype=torch.float64)
    weight = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    expected = torch.stack([torch.stack([w @ a @ w for w in weight.T]) for a in matrix])
    torch.testing.assert_close(quadratic_forms(matrix, weight), expected)


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(ValueError, match=r"quadratic_forms: expected weight \(4, K\), got \(3, 2\)"):
        quadratic_forms(torch.eye(4), torch.rand(3, 2))
