"""Samples of a Gauss–Markov chain, whose graph is known."""

import numpy as np


def chain_precision(size=8):
    return np.eye(size) + np.diag([-0.45] * (size - 1), 1) + np.diag([-0.45] * (size - 1), -1)


def chain_samples(n, size=8, seed=0):
    """Variable i depends on i ± 1 alone."""
    covariance = np.linalg.inv(chain_precision(size))
    return np.random.default_rng(seed).multivariate_normal(np.arange(size), covariance, size=n)


def chain_edges(size=8):
    return np.eye(size, k=1, dtype=bool) | np.eye(size, k=-1, dtype=bool)
