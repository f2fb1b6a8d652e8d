"""The kernels against PyTorch in float64: on a GPU, or by Triton's interpreter where there is none."""

import pytest
import torch

pytest.importorskip("triton")

from isice.kernels import newton_schulz, sparse_step
from isice.ops._sparse_step import sparse_step as step_reference
from isice.ops._sparse_step import sparse_step_vjp as step_vjp_reference
from isice.ops.newton_schulz import factor_product, factor_product_derivative

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KINDS = ["inverse", "sqrt", "inverse_sqrt"]
# The interpreter multiplies bfloat16 wrongly, so it checks everything but the rounding.
TOLERANCE = {"ieee": 5e-6, "bf16x3": 5e-5, "tf32": 3e-2} if DEVICE == "cuda" else {"ieee": 5e-6}


def trace_one(batch, size, samples, seed=0):
    x = torch.randn(batch, size, samples, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).relu()
    cov = (x - x.mean(-1, keepdim=True)) @ (x - x.mean(-1, keepdim=True)).mT
    return cov / cov.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None]


def direction(batch, size):
    g = torch.randn(batch, size, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return g + g.mT


def relative_error(value, expected):
    return float((value.double().cpu() - expected).norm() / expected.norm())


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_iter", [1, 2, 4])
@pytest.mark.parametrize("size", [8, 21] if DEVICE == "cpu" else [8, 21, 63, 70, 100, 256, 257])
def test_newton_schulz(kind, n_iter, size, precision):
    t, dt = trace_one(2, size, 3 * size), direction(2, size)
    single = [t.float().to(DEVICE), dt.float().to(DEVICE)]
    value = newton_schulz.run(single[:1], n_iter, kind, precision)
    derivative = newton_schulz.run(single, n_iter, kind, precision)
    assert relative_error(value, factor_product(t, n_iter, kind)) < TOLERANCE[precision]
    assert relative_error(derivative, factor_product_derivative(t, dt, n_iter, kind)) < TOLERANCE[precision]
    assert torch.equal(value, value.mT)


def test_several_tiles():
    t, dt = trace_one(1, 70, 100), direction(1, 70)
    value = newton_schulz.run([t.float().to(DEVICE), dt.float().to(DEVICE)], 2, "inverse", "ieee")
    assert relative_error(value, factor_product_derivative(t, dt, 2, "inverse")) < 5e-6


def test_the_batch_is_taken_in_chunks(monkeypatch):
    t = trace_one(5, 16, 40).float().to(DEVICE)
    whole = newton_schulz.run([t], 3, "inverse", "ieee")
    monkeypatch.setattr(newton_schulz, "_WORKSPACE_FLOATS", 2 * 5 * 16 * 16)
    assert torch.equal(newton_schulz.run([t], 3, "inverse", "ieee"), whole)


@pytest.mark.parametrize("direction_", ["value", "derivative"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_launch_never_writes_what_it_reads(direction_, kind):
    for n_iter in (1, 2, 3, 7):
        for slots, factors in newton_schulz.schedule(direction_, n_iter, kind, torch.device("cpu")).launches:
            read = set()
            for row, weights in zip(slots.tolist(), factors.tolist(), strict=True):
                products, added = int(weights[3]), weights[1] != 0
                read |= set(row[1 : 1 + 2 * products]) | ({row[5]} if added else set())
            written = [row[0] for row in slots.tolist()]
            assert len(set(written)) == len(written)
            assert not set(written) & read


@pytest.mark.parametrize("size", [8, 50])
def test_sparse_step(size):
    generator = torch.Generator().manual_seed(0)
    s, nabla, sigma, grad = torch.randn(4, 3, size, size, generator=generator, dtype=torch.float64)
    s[:, 0] = 0
    rate, lam = torch.rand(2, 3, 1, 1, generator=generator, dtype=torch.float64)
    arguments = (s, nabla, sigma, rate, lam)
    single = tuple(a.float().to(DEVICE) for a in arguments)
    expected = step_reference(*arguments, kernels=False)
    assert relative_error(sparse_step.step(*single), expected) < 1e-5
    found = sparse_step.step_vjp(*single, grad.float().to(DEVICE))
    for value, want in zip(found, step_vjp_reference(*arguments, grad, kernels=False), strict=True):
        assert value.shape == want.shape
        assert relative_error(value, want) < 1e-4
