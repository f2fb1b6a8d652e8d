"""Slow families of the graphical lasso, the acceleration of ADMM, and small matrices."""

import pytest
import torch
from torch import Tensor

from isice.ops.graphical_lasso import graphical_lasso, graphical_lasso_reference
from isice.ops.graphical_lasso.admm import Anderson, Strategy
from isice.ops.graphical_lasso.certificate import duality_gap
from isice.ops.graphical_lasso.small import SMALL_SIZE, SmallAnderson
from isice.ops.graphical_lasso.solver import solve

from .correlations import KINDS, off_penalty


def autoregressive(size: int, rho: float = 0.99) -> Tensor:
    place = torch.arange(size, dtype=torch.float64)
    return rho ** (place[:, None] - place).abs()


@pytest.mark.parametrize(
    ("size", "sparsity", "bound"), [(50, 0.03, 90), (50, 0.01, 120), (80, 0.3, 90), (80, 0.1, 150)]
)
def test_an_autoregressive_process_takes_few_iterations(size: int, sparsity: float, bound: int) -> None:
    result = graphical_lasso(autoregressive(size), sparsity, tol=1e-7)
    assert float(result.gap) <= 1e-7 * size
    assert int(result.n_iter) <= bound


@pytest.mark.parametrize("size", [50, 100])
@pytest.mark.parametrize("sparsity", [0.3, 0.03, 1e-3])
def test_rank_one_is_solved_by_the_start(size: int, sparsity: float) -> None:
    vector = torch.randn(size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    result = graphical_lasso(torch.outer(vector, vector), sparsity, scale="correlation", tol=1e-7)
    assert int(result.n_iter) <= 1
    assert float(result.gap) <= 1e-7 * size
    signs = vector.sign()
    # W = (1 − λ)·s·sᵀ + λI on the scale of correlations, whose inverse is known.
    expected = (
        torch.eye(size) - (1 - sparsity) / (sparsity + (1 - sparsity) * size) * torch.outer(signs, signs)
    ) / sparsity
    precision = result.precision * vector.abs()[:, None] * vector.abs()
    torch.testing.assert_close(precision, expected, rtol=1e-6, atol=1e-7 / sparsity)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_linear_iteration_is_accelerated(dtype: torch.dtype) -> None:
    rates = torch.tensor([[0.9, 0.7, -0.5, 0.3], [0.8, 0.5, 0.2, 0.0]], dtype=dtype).diag_embed()
    limit = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(0), dtype=dtype)
    limit = limit + limit.mT
    point, anderson = torch.zeros_like(limit), Anderson()
    for _ in range(12):
        image = limit + 0.5 * (rates @ (point - limit) + (point - limit) @ rates)
        anderson.extrapolate_(point, image)
        point = image
    assert float((point - limit).abs().max()) < 0.02  # 0.9¹² of the first error, without acceleration


def test_the_acceleration_of_a_small_matrix_is_that_of_a_batch() -> None:
    """Also where an image grows, after which both start from the last image."""
    generator = torch.Generator().manual_seed(0)
    points, images = torch.randn(2, 6, 1, 3, 3, generator=generator, dtype=torch.float64)
    images[5] *= 1e3
    points, images = points + points.mT, images + images.mT
    batch, small = Anderson(), SmallAnderson(3)
    for point, image in zip(points, images, strict=True):
        expected = small.extrapolated(point[0].numpy(), image[0].numpy())
        batch.extrapolate_(point.clone(), image)
        torch.testing.assert_close(image[0], torch.from_numpy(expected))


def test_an_extrapolation_from_which_the_move_grows_is_taken_back() -> None:
    generator = torch.Generator().manual_seed(0)
    anderson, plain = Anderson(), 0.1 * torch.randn(4, 2, 3, 3, generator=generator)
    plain = plain + plain.mT
    plain[3, 0] *= 1e3
    images = plain.clone()
    for image in images:
        anderson.extrapolate_(torch.zeros(2, 3, 3), image)
    torch.testing.assert_close(images[3, 0], plain[2, 0])
    assert not torch.allclose(images[3, 1], plain[2, 1])


def test_the_acceleration_stays_at_a_fixed_point() -> None:
    point, anderson = torch.eye(3).expand(2, 3, 3), Anderson()
    for _ in range(3):
        image = point.clone()
        anderson.extrapolate_(point.clone(), image)
        torch.testing.assert_close(image, point)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sparsity", [0.3, 0.03])
def test_small_matrices_have_the_solution_and_certificate_of_the_batch(kind: str, sparsity: float) -> None:
    cov, penalty = KINDS[kind](40, 2, 0), off_penalty(40, sparsity).expand(2, 40, 40)
    small = solve(cov, penalty, 1e-8, 500)
    batch = solve(cov, penalty, 1e-8, 500, strategy=Strategy("eigh"))
    torch.testing.assert_close(small.precision, batch.precision, rtol=0, atol=2e-3)
    torch.testing.assert_close(small.precision @ small.covariance, torch.eye(40).double().expand(2, 40, 40))
    assert bool(((small.dual - cov).abs() <= penalty + 1e-15).all())
    torch.testing.assert_close(small.gap, duality_gap(cov, penalty, small.precision, small.dual))
    assert float(small.gap.max()) <= 1e-8 * 40


def test_a_small_matrix_agrees_with_the_oracle_and_not_with_its_neighbours() -> None:
    cov = KINDS["sparse"](SMALL_SIZE, 3, 0)
    together = graphical_lasso(cov, 0.1, tol=1e-8)
    alone = graphical_lasso(cov[1], 0.1, tol=1e-8)
    assert torch.equal(together.precision[1], alone.precision)
    torch.testing.assert_close(alone.precision, graphical_lasso_reference(cov[1], 0.1), rtol=0, atol=2e-3)
