"""Structured projections against dense matrices and loops."""

import pytest
import torch

from isice.ops.projection import kronecker_projection, low_rank_scores, rank_one_update, two_sided_projection


def features(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_rank_one_update_equals_the_dense_formula():
    x, start = features(2, 5, 9), features(5, seed=1)
    for image, got in zip(x, rank_one_update(x, start, n_iter=3, strength=0.3), strict=True):
        v = start
        for _ in range(3):
            v = image @ image.T @ v
        expected = (torch.eye(5, dtype=torch.float64) - 0.3 * torch.outer(v, v) / (v @ v)) @ image
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-10)


def test_rank_one_update_damps_only_the_leading_eigenvalue():
    x = features(1, 4, 20) * torch.tensor([5.0, 2.0, 1.0, 0.5], dtype=torch.float64)[:, None]
    before = torch.linalg.svdvals(x[0])
    after = torch.linalg.svdvals(rank_one_update(x, features(4, seed=1), n_iter=60, strength=0.25)[0])
    torch.testing.assert_close(after, before * torch.tensor([0.75, 1, 1, 1], dtype=torch.float64))


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_rank_one_update_is_linear_in_the_scale(scale):
    x, start = features(2, 5, 9), features(5, seed=1)
    torch.testing.assert_close(rank_one_update(scale * x, start), scale * rank_one_update(x, start), rtol=1e-4, atol=0)


def test_low_rank_scores_equal_the_inner_product_with_the_bilinear_matrix():
    x, factors = features(2, 5, 9), features(3, 4, 5, seed=1)
    for b in range(2):
        for k in range(3):
            plus, minus = factors[k, :2].T, factors[k, 2:].T
            weight = plus @ plus.T - minus @ minus.T
            expected = (weight * (x[b] @ x[b].T)).sum()
            torch.testing.assert_close(low_rank_scores(x, factors)[b, k], expected)


@pytest.mark.parametrize("channels", [6, 5])
def test_kronecker_projection_equals_its_dense_matrix(channels):
    blocks, x = 3, features(2, channels, 7)
    left, right = features(4, 2, seed=1), features(1, 2, seed=2)
    eye = torch.eye(blocks, dtype=torch.float64)
    dense = torch.kron(torch.kron(eye, left), torch.kron(right, eye))
    padded = torch.cat([x, torch.zeros(2, 6 - channels, 7, dtype=torch.float64)], dim=1)
    for image, got in zip(padded, kronecker_projection(x, left, right, blocks), strict=True):
        bilinear = image @ image.T / 7
        torch.testing.assert_close(got, dense @ bilinear.T.reshape(-1))


def test_two_sided_projection_equals_a_loop():
    matrix, left, right = features(2, 4, 4), features(3, 4, seed=1), features(2, 4, seed=2)
    expected = [[(left[i] @ a @ right[j]).item() for i in range(3) for j in range(2)] for a in matrix]
    torch.testing.assert_close(two_sided_projection(matrix, left, right), torch.tensor(expected, dtype=torch.float64))


def test_gradients():
    x = features(2, 4, 5).requires_grad_()
    factors = features(2, 2, 4, seed=1).requires_grad_()
    left, right = features(1, 2, seed=2).requires_grad_(), features(2, 2, seed=3).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: rank_one_update(x, features(4, seed=4)), x)
    assert torch.autograd.gradcheck(low_rank_scores, (x, factors))
    assert torch.autograd.gradcheck(lambda *a: kronecker_projection(*a, blocks=2), (x, left, right))


def test_bad_shapes_are_named():
    with pytest.raises(ValueError, match=r"low_rank_scores: expected factors \(K, R, 4\) with R even, got \(3, 3, 4\)"):
        low_rank_scores(torch.rand(2, 4, 5), torch.rand(3, 3, 4))
    with pytest.raises(ValueError, match=r"kronecker_projection: expected factors with ⌈4/2⌉ = 2 columns"):
        kronecker_projection(torch.rand(2, 4, 5), torch.rand(1, 3), torch.rand(1, 2), 2)
    with pytest.raises(ValueError, match=r"rank_one_update: expected features \(B, C, N\)"):
        rank_one_update(torch.rand(2, 4, 5, 5), torch.rand(4))
    with pytest.raises(ValueError, match="two_sided_projection: expected projections with 4 columns"):
        two_sided_projection(torch.rand(2, 4, 4), torch.rand(2, 4), torch.rand(2, 3))
