"""Inputs shared by the tests of the operations."""

import pytest
import torch

import isice.functional as F


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def make_cov(generator):
    """Random covariance matrices ``make_cov(batch, size, samples)``, singular if samples ≤ size."""

    def make(*batch_and_size, samples=40, dtype=torch.float64):
        x = torch.randn(*batch_and_size, samples, 1, generator=generator, dtype=torch.float64)
        return F.covariance(x.relu()).to(dtype)

    return make


def symmetric(matrix):
    return 0.5 * (matrix + matrix.mT)
