"""Samples of a Gauss–Markov chain and of random graphs, whose edges are known."""

import numpy as np


def chain_precision(size=8):
    return np.eye(size) + np.diag([-0.45] * (size - 1), 1) + np.diag([-0.45] * (size - 1), -1)


def chain_samples(n, size=8, seed=0):
    """Variable i depends on i ± 1 alone."""
    covariance = np.linalg.inv(chain_precision(size))
    return np.random.default_rng(seed).multivariate_normal(np.arange(size), covariance, size=n)


def chain_edges(size=8):
    return np.eye(size, k=1, dtype=bool) | np.eye(size, k=-1, dtype=bool)


def chain_graph(n, size=20, seed=0):
    """Return samples of a chain and its edges i < j."""
    return chain_samples(n, size, seed), np.triu(chain_edges(size))


def random_graph(n, size=20, seed=0):
    """Return samples of a random graph with weak edges, and its edges i < j."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((size, size)) < 2.5 / size, 1) * rng.uniform(-0.35, 0.35, (size, size))
    precision = upper + upper.T
    precision += 1.05 * max(1, np.abs(np.linalg.eigvalsh(precision)).max()) * np.eye(size)
    return rng.multivariate_normal(np.zeros(size), np.linalg.inv(precision), size=n), upper != 0
