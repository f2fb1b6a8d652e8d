"""Memory of the solver: at most 14 D² numbers per matrix, linear in the batch."""

from functools import partial

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from isice.ops.graphical_lasso import graphical_lasso

from .correlations import KINDS

# The covariance's own unit, and the tolerance of a layer.
graphical_lasso = partial(graphical_lasso, scale="raw", tol=1e-4)


def peak_bytes(run):
    """Peak of the CPU allocator above its level before the call, including LAPACK workspaces."""
    run()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


def per_entry(cov, run):
    return peak_bytes(run) / (cov.element_size() * cov.numel())


def test_peak_memory_counts_allocations():
    x = torch.zeros(1000, dtype=torch.float64)
    assert peak_bytes(lambda: (x + 1) * 2) == pytest.approx(16_000, abs=600)


@pytest.mark.parametrize("sparsity", [0.3, 0.1, 0.02])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "tol"), [(torch.float32, 1e-4), (torch.float64, 1e-4), (torch.float64, 1e-10)])
def test_no_more_than_fourteen_numbers_per_entry(kind, sparsity, dtype, tol):
    cov = KINDS[kind](40, 64, 0).to(dtype)
    assert per_entry(cov, lambda: graphical_lasso(cov, sparsity, tol=tol)) <= 14


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("polish", [False, True])
def test_the_gradient_stays_within_the_limit_too(kind, polish):
    cov = KINDS[kind](40, 64, 0).float()
    leaf, weights = cov.clone().requires_grad_(), torch.randn(40, 40)

    def run():
        leaf.grad = None
        (graphical_lasso(leaf, 0.1, polish=polish).precision * weights).sum().backward()

    assert per_entry(cov, run) <= (28 if polish else 14)  # polished in float64


def test_float64_continuation_is_chunked():
    vector = torch.linspace(1, 2, 36)
    cov = torch.outer(vector, vector).expand(64, 36, 36).contiguous()
    run = lambda: graphical_lasso(cov, 0.01)  # noqa: E731
    assert int(run().n_iter.min()) > 100  # where float32 ends
    assert per_entry(cov, run) <= 14


def test_blocks_that_padding_makes_large_go_part_by_part():
    part = KINDS["relu"](33, 16, 0).float()
    cov = torch.zeros(16, 66, 66)
    cov[:, :33, :33], cov[:, 33:, 33:] = part, part
    assert per_entry(cov, lambda: graphical_lasso(cov, 0.05)) <= 14


def test_memory_is_linear_in_the_batch():
    cov = KINDS["relu"](40, 96, 0).float()
    small = peak_bytes(lambda: graphical_lasso(cov[:48], 0.1))
    large = peak_bytes(lambda: graphical_lasso(cov, 0.1))
    assert large <= 2.2 * small
