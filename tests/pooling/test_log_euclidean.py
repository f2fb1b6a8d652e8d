import torch

from isice.ops.vectorize import unvectorize
from isice.pooling import create_pooling

X = torch.randn(2, 5, 6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_the_matrix_exponential_undoes_it() -> None:
    expected = torch.stack([torch.cov(image, correction=0) + 0.01 * torch.eye(5) for image in X.flatten(2)])
    vector = create_pooling("log_euclidean(eps=0.01)", 5)(X)
    torch.testing.assert_close(torch.linalg.matrix_exp(unvectorize(vector)), expected)


def test_without_variance_it_is_the_logarithm_of_the_ridge() -> None:
    matrix = create_pooling("log_euclidean(eps=0.01)", 5).matrix(torch.ones(1, 5, 3, 3))
    torch.testing.assert_close(matrix[0], torch.tensor(0.01).log() * torch.eye(5))


def test_scaling_the_features_adds_to_the_diagonal() -> None:
    layer = create_pooling("log_euclidean(eps=1e-12)", 5)
    difference = layer.matrix(3 * X) - layer.matrix(X)
    torch.testing.assert_close(difference, torch.tensor(9.0).log() * torch.eye(5, dtype=torch.float64).expand(2, 5, 5))
