"""Random correlation matrices for the graphical lasso: well-conditioned and singular."""

import math

import torch

import isice.functional as F


def sparse_model(size, batch, seed):
    """Return correlations of 4·D samples from a model with about two edges per variable."""
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, size, size)
    edges = torch.rand(shape, generator=generator) < 2 / size
    upper = torch.where(edges, torch.rand(shape, generator=generator, dtype=torch.float64) - 0.5, 0.0).triu(1)
    precision = upper + upper.mT
    precision = precision + torch.diag_embed(precision.abs().sum(-1) + 0.5)
    noise = torch.randn(batch, size, 4 * size, generator=generator, dtype=torch.float64)
    x = torch.linalg.solve_triangular(torch.linalg.cholesky(precision).mT, noise, upper=True)
    return F.correlation(F.covariance(x))


def relu_features(size, batch, seed):
    """Return singular correlations: rectified features of few factors at D/2 positions."""
    generator = torch.Generator().manual_seed(seed)
    factors, samples = size // 4, size // 2
    loadings = torch.randn(batch, size, factors, generator=generator, dtype=torch.float64) / math.sqrt(factors)
    x = loadings @ torch.randn(batch, factors, samples, generator=generator, dtype=torch.float64)
    noise = torch.randn(batch, size, samples, generator=generator, dtype=torch.float64)
    return F.correlation(F.covariance((x + noise).relu()))


KINDS = {"sparse": sparse_model, "relu": relu_features}


def sample_cov(size, samples, *, batch=(), seed=0, relu=False, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*batch, size, samples, generator=generator, dtype=torch.float64)
    mixing = torch.eye(size, dtype=torch.float64) + 0.5 * torch.randn(size, size, generator=generator).double() / 2
    x = mixing @ x
    x = x.relu() if relu else x
    x = x - x.mean(-1, keepdim=True)
    return (x @ x.mT / samples).to(dtype)


def off_diagonal(size):
    return ~torch.eye(size, dtype=torch.bool)


def off_penalty(size, sparsity):
    return sparsity * off_diagonal(size).double()
