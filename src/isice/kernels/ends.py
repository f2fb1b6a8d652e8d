"""What stands before and after the loop of iSICE, each one launch: traces divided out, cotangents spread and gathered.

Matrices are packed as ``vectorize`` gives them, D(D+1)/2 numbers an image, unless said otherwise.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .tiles import load_tile, place, place_on_diagonal, store_tile, trace_of

_ROWS, _COLUMNS, _CHUNK = 16, 64, 2048


@triton.jit
def _power(value, exponent):
    return tl.exp2(exponent * tl.log2(value))


@triton.jit
def _normalize(cov, sigma, scales, D, SPAN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    image, block = tl.program_id(1).to(tl.int64), tl.program_id(0)
    cov += image * D * D
    sigma += image * (D * (D + 1) // 2)
    trace, alive = trace_of(cov, D, 0.0, False, SPAN)
    tl.store(scales + 2 * image, trace)
    tl.store(scales + 2 * image + 1, alive)
    rows = block * ROWS + tl.arange(0, ROWS)
    for begin in range(block * ROWS // COLUMNS * COLUMNS, D, COLUMNS):
        columns = begin + tl.arange(0, COLUMNS)
        tile = load_tile(cov, rows, columns, D, False) / trace
        tile += tl.where(rows[:, None] == columns[None, :], (1.0 - alive) / D, 0.0)
        store_tile(sigma, tile, rows, columns, D, True)


@triton.jit
def _divide(s, out, totals, power, D, SPAN: tl.constexpr, CHUNK: tl.constexpr):
    image, size = tl.program_id(1).to(tl.int64), D * (D + 1) // 2
    trace, alive = trace_of(s + image * size, D, 0.0, True, SPAN)
    tl.store(totals + 2 * image, trace)
    tl.store(totals + 2 * image + 1, alive)
    index = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    value = tl.load(s + image * size + index, mask=index < size) * _power(trace, -power)
    tl.store(out + image * size + index, value, mask=index < size)


@triton.jit
def _spread(grad, out, totals, d_s, power, D, SPAN: tl.constexpr, CHUNK: tl.constexpr):
    image, size = tl.program_id(0).to(tl.int64), D * (D + 1) // 2
    grad += image * size
    out += image * size
    d_s += image * size
    trace, alive = tl.load(totals + 2 * image), tl.load(totals + 2 * image + 1)
    factor = _power(trace, -power)
    along = tl.zeros((CHUNK,), dtype=tl.float32)
    for begin in range(0, size, CHUNK):
        index = begin + tl.arange(0, CHUNK)
        given = tl.load(grad + index, mask=index < size, other=0.0)
        along += given * tl.load(out + index, mask=index < size, other=0.0)
        # An entry of the vector stands for two entries of the matrix.
        tl.store(d_s + index, 0.5 * factor * given, mask=index < size)
    tl.debug_barrier()
    row = tl.arange(0, SPAN)
    spots = place_on_diagonal(row, D, True)
    itself = factor * tl.load(grad + spots, mask=row < D, other=0.0)
    tl.store(d_s + spots, itself - power * alive * tl.sum(along) / trace, mask=row < D)


@triton.jit
def _weighed(d_sigma, d_first, sigma, index, inside):
    grad = tl.load(d_sigma + index, mask=inside, other=0.0) + tl.load(d_first + index, mask=inside, other=0.0)
    return grad * tl.load(sigma + index, mask=inside, other=0.0)


@triton.jit
def _gather(d_sigma, d_first, sigma, scales, d_cov, D, SPAN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
            CHUNK: tl.constexpr):  # fmt: skip
    image, block, size = tl.program_id(1).to(tl.int64), tl.program_id(0), D * (D + 1) // 2
    d_sigma += image * size
    d_first += image * size
    sigma += image * size
    trace, alive = tl.load(scales + 2 * image), tl.load(scales + 2 * image + 1)
    twice = tl.zeros((CHUNK,), dtype=tl.float32)
    for begin in range(0, size, CHUNK):
        twice += _weighed(d_sigma, d_first, sigma, begin + tl.arange(0, CHUNK), begin + tl.arange(0, CHUNK) < size)
    index = tl.arange(0, SPAN)
    once = _weighed(d_sigma, d_first, sigma, place_on_diagonal(index, D, True), index < D)
    along = 2 * tl.sum(twice) - tl.sum(once)
    rows = block * ROWS + tl.arange(0, ROWS)
    for begin in range(0, D, COLUMNS):
        columns = begin + tl.arange(0, COLUMNS)
        tile = load_tile(d_sigma, rows, columns, D, True) + load_tile(d_first, rows, columns, D, True)
        tile -= tl.where(rows[:, None] == columns[None, :], alive * along, 0.0)
        inside = (rows[:, None] < D) & (columns[None, :] < D)
        tl.store(d_cov + image * D * D + place(rows, columns, D, False), tile / trace, mask=inside)


def normalize(cov: Tensor) -> tuple[Tensor, Tensor]:
    """Packed Σ/tr Σ of whole matrices, I/D without variance; and (B, 2): the trace, and whether it counts."""
    batch, D, _ = cov.shape
    sigma, scales = cov.new_empty((batch, D * (D + 1) // 2)), cov.new_empty((batch, 2))
    if batch:
        _normalize[(triton.cdiv(D, _ROWS), batch)](
            cov, sigma, scales, D, SPAN=triton.next_power_of_2(D), ROWS=_ROWS, COLUMNS=_COLUMNS
        )
    return sigma, scales


def divide(s: Tensor, power: float, D: int) -> tuple[Tensor, Tensor]:
    """S/tr(S)^power; and (B, 2): the trace, and whether it counts."""
    out, totals = torch.empty_like(s), s.new_empty((len(s), 2))
    if len(s):
        _divide[(triton.cdiv(s.shape[1], _CHUNK), len(s))](
            s, out, totals, power, D, SPAN=triton.next_power_of_2(D), CHUNK=_CHUNK
        )
    return out, totals


def spread(grad: Tensor, out: Tensor, totals: Tensor, power: float, D: int) -> Tensor:
    """The cotangent of S as entries of a symmetric matrix, for that of the vector ``out`` of :func:`divide`."""
    d_s = torch.empty_like(out)
    if len(out):
        _spread[(len(out),)](
            grad, out, totals, d_s, power, D, SPAN=triton.next_power_of_2(D), CHUNK=_CHUNK, num_warps=8
        )
    return d_s


def gather(d_sigma: Tensor, d_first: Tensor, sigma: Tensor, scales: Tensor, D: int) -> Tensor:
    """The cotangent of Σ, whole matrices, for the sum of two cotangents of :func:`normalize`'s result."""
    d_cov = sigma.new_empty((len(sigma), D, D))
    if len(sigma):
        _gather[(triton.cdiv(D, 64), len(sigma))](
            d_sigma, d_first, sigma, scales, d_cov, D,
            SPAN=triton.next_power_of_2(D), ROWS=64, COLUMNS=_COLUMNS, CHUNK=_CHUNK, num_warps=8,
        )  # fmt: skip
    return d_cov
