"""Tiled and packed storage against PyTorch: on a GPU, or by Triton's interpreter."""

import pytest
import torch

pytest.importorskip("triton")

from isice.kernels.isice import normalize_trace, normalize_trace_vjp, pack, pack_vjp
from isice.kernels.layout import from_tiles, norms_of, tiled_shape, to_tiles
from isice.ops.vectorize import vectorize

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def noise(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(DEVICE)


@pytest.mark.parametrize("size", [5, 16, 30, 64, 70] if DEVICE == "cpu" else [5, 16, 30, 64, 70, 130])
def test_tiles_and_back(size):
    grad = noise(2, size, size)
    matrix = grad + grad.mT
    tiles = to_tiles(matrix, size)
    assert tiles.shape == tiled_shape(2, size)
    assert torch.equal(from_tiles(tiles, size), matrix)
    assert torch.equal(from_tiles(tiles, size, packed=True), vectorize(matrix))
    assert torch.equal(to_tiles(vectorize(matrix), size), tiles)
    torch.testing.assert_close(from_tiles(to_tiles(grad, size, cotangent=True), size), 0.5 * (grad + grad.mT))


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_norms_of_tiles(scale):
    tiles = scale * noise(3, 2, 70, 70)  # more than one block reads
    torch.testing.assert_close(norms_of(tiles).double(), tiles.double().flatten(1).norm(dim=1), rtol=1e-6, atol=0)
    assert norms_of(tiles[:0]).shape == (0,)


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
def test_a_batch_may_be_larger_than_the_second_axis_of_a_grid():
    batch, size = 70000, 8
    matrices = torch.eye(size, device=DEVICE).repeat(batch, 1, 1)
    sigma, traces = normalize_trace(matrices)
    packed, totals = pack(sigma, 0.5, size)
    d_s, norms = pack_vjp(packed, packed, totals, 0.5, size)
    found = from_tiles(sigma, size), from_tiles(sigma, size, packed=True), d_s, norms, norms_of(sigma)
    for result in (*found, normalize_trace_vjp(d_s, d_s, sigma, traces, size)):
        assert torch.equal(result, result[:1].expand_as(result))
