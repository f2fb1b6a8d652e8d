"""SICE as a layer: what it returns is the graphical lasso, and it learns."""

import numpy as np
import pytest
import torch
from sklearn.covariance import graphical_lasso

from isice.ops.covariance import covariance_reference
from isice.ops.graphical_lasso import graphical_lasso_reference
from isice.ops.vectorize import unvectorize
from isice.pooling import create_pooling


def features(batch=2, channels=6, side=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(channels, channels, generator=generator, dtype=torch.float64)
    x = torch.randn(batch, channels, side * side, generator=generator, dtype=torch.float64)
    return (mixing @ x).relu().unflatten(-1, (side, side))


def test_is_the_graphical_lasso_of_the_correlation_matrix():
    x = features()
    matrices = create_pooling("sice(sparsity=0.15, tol=1e-11)", 6).matrix(x)
    for image, precision in zip(x, matrices, strict=True):
        cov = covariance_reference(image.flatten(1))
        deviation = cov.diagonal().sqrt()
        expected = graphical_lasso_reference(cov / torch.outer(deviation, deviation), 0.15)
        torch.testing.assert_close(precision, expected, rtol=1e-5, atol=1e-6)
        assert bool((expected == 0).any())


def test_a_ridge_gives_the_graphical_lasso_of_the_shrunk_correlations():
    x = features()
    x[:, 2] = 0.0  # a dead channel stays unconnected
    matrices = create_pooling("sice(sparsity=0.1, ridge=0.5, tol=1e-11)", 6).matrix(x)
    for image, precision in zip(x, matrices, strict=True):
        with np.errstate(invalid="ignore"):
            shrunk = np.nan_to_num(np.corrcoef(image.flatten(1).numpy())) / 1.5
        np.fill_diagonal(shrunk, 1.0)
        _, expected = graphical_lasso(shrunk, 0.1, tol=1e-10, enet_tol=1e-10, max_iter=1000)
        np.testing.assert_allclose(precision.numpy(), expected, rtol=1e-4, atol=1e-5)
        assert (expected == 0).any()


def test_does_not_depend_on_the_scale_of_a_channel():
    x, layer = features(), create_pooling("sice(tol=1e-10)", 6)
    scale = torch.logspace(-2, 2, 6, dtype=torch.float64)[:, None, None]
    torch.testing.assert_close(layer(x * scale), layer(x), rtol=1e-3, atol=1e-4)


def test_partial_correlations_have_a_unit_diagonal_and_the_same_zeros():
    x = features()
    precision = create_pooling("sice", 6).matrix(x)
    partial = unvectorize(create_pooling("sice(output='partial_correlation')", 6)(x))
    torch.testing.assert_close(partial.diagonal(dim1=1, dim2=2), torch.ones(2, 6, dtype=torch.float64))
    assert torch.equal(partial == 0, precision == 0)
    assert float(partial.abs().max()) <= 1


@pytest.mark.parametrize("spec", ["sice(tol=1e-12)", "sice(tol=1e-12, learn_sparsity=True, ridge=0.5)"])
def test_gradcheck(spec):
    layer = create_pooling(spec, 4).double()
    x = features(1, 4, 3).requires_grad_()
    inputs = (x, *layer.parameters())
    assert torch.autograd.gradcheck(lambda x, *_: layer(x), inputs, atol=1e-5, rtol=1e-3, fast_mode=True)


def test_a_learned_sparsity_finds_the_one_that_made_the_target():
    x = features(4)
    target = create_pooling("sice(sparsity=0.3, tol=1e-8)", 6)(x)
    layer = create_pooling("sice(sparsity=0.1, learn_sparsity=True, tol=1e-8)", 6).double()
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        (layer(x) - target).square().mean().backward()
        optimizer.step()
    assert float(layer.log_sparsity.detach().exp()) == pytest.approx(0.3, rel=0.05)


def test_non_finite_features_give_nan_instead_of_stopping_a_training_run():
    x = features().float()
    x[0, 0, 0, 0] = float("inf")
    vectors = create_pooling("sice", 6)(x)
    assert vectors[0].isnan().all()
    assert vectors[1].isfinite().all()


def test_on_the_covariance_scale_it_is_the_graphical_lasso_of_the_covariance():
    x = torch.randn(2, 5, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[:, 2] *= 10
    layer = create_pooling("sice(sparsity=0.1, scale='covariance', tol=1e-11)", 5)
    for image, precision in zip(x, layer.matrix(x), strict=True):
        expected = graphical_lasso_reference(covariance_reference(image.flatten(1)), 0.1)
        torch.testing.assert_close(precision, expected, rtol=1e-4, atol=1e-5)
    x[:, 3] = 0  # a dead channel
    matrix = layer.matrix(x)
    assert matrix.isfinite().all()
    assert matrix[:, 3, [0, 1, 2, 4]].abs().max() == 0
    assert layer(torch.zeros_like(x)).isfinite().all()
