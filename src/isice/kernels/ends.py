"""What stands before and after an iteration, each one launch: matrices and vectors to tiles and back, with scales.

A *vector* is the upper triangle of a symmetric matrix, row by row, as of ``vectorize``; in a cotangent each of its
entries off the diagonal stands for two of the matrix.
"""

import triton
import triton.language as tl
from torch import Tensor

from .program import block_of, tiled_shape
from .tiles import diagonal_places, tile_corner, trace_of


@triton.jit
def _power(value, exponent):
    return tl.exp2(exponent * tl.log2(value))


@triton.jit
def _place(rows, columns, D, VECTOR: tl.constexpr):
    """Offsets of the entries of a tile on or above the diagonal, in a matrix or in a vector."""
    if VECTOR:
        row, column = tl.minimum(rows[:, None], columns[None, :]), tl.maximum(rows[:, None], columns[None, :])
        return row * D - row * (row + 1) // 2 + column
    return rows[:, None] * D + columns[None, :]


@triton.jit
def _square(tile, D, N_BLOCKS: tl.constexpr, BLOCK: tl.constexpr):
    """Rows and columns of a tile, offsets within it, which entries exist, and which lie on the diagonal."""
    first_row, first_column, _ = tile_corner(tile, N_BLOCKS, BLOCK)
    line = tl.arange(0, BLOCK)
    rows, columns = first_row + line, first_column + line
    inside = (rows < D)[:, None] & (columns < D)[None, :]
    return rows, columns, line[:, None] * BLOCK + line[None, :], inside, rows[:, None] == columns[None, :]


@triton.jit
def _to_tiles(source, tiles, D, VECTOR: tl.constexpr, SYMMETRIZE: tl.constexpr, N_TILES: tl.constexpr,
              N_BLOCKS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    image, tile = tl.program_id(1).to(tl.int64), tl.program_id(0)
    rows, columns, at, inside, diagonal = _square(tile, D, N_BLOCKS, BLOCK)
    source += image * (D * (D + 1) // 2 if VECTOR else D * D)
    value = tl.load(source + _place(rows, columns, D, VECTOR), mask=inside, other=0.0)
    if SYMMETRIZE and VECTOR:
        value = tl.where(diagonal, value, 0.5 * value)
    elif SYMMETRIZE:
        mirrored = tl.load(source + _place(columns, rows, D, False), mask=tl.trans(inside), other=0.0)
        value = 0.5 * (value + tl.trans(mirrored))
    tl.store(tiles + (image * N_TILES + tile) * (BLOCK * BLOCK) + at, value)


@triton.jit
def _from_tiles(tiles, out, D, VECTOR: tl.constexpr, N_TILES: tl.constexpr, N_BLOCKS: tl.constexpr,
                BLOCK: tl.constexpr):  # fmt: skip
    image, tile = tl.program_id(1).to(tl.int64), tl.program_id(0)
    rows, columns, at, inside, _ = _square(tile, D, N_BLOCKS, BLOCK)
    value = tl.load(tiles + (image * N_TILES + tile) * (BLOCK * BLOCK) + at)
    if VECTOR:
        out += image * (D * (D + 1) // 2)
        tl.store(out + _place(rows, columns, D, True), value, mask=inside & (rows[:, None] <= columns[None, :]))
    else:
        out += image * D * D
        tl.store(out + _place(rows, columns, D, False), value, mask=inside & (rows[:, None] <= columns[None, :]))
        above = columns[:, None] > rows[None, :]
        tl.store(out + _place(columns, rows, D, False), tl.trans(value), mask=tl.trans(inside) & above)


@triton.jit
def _normalize(cov, sigma, scales, D, SPAN: tl.constexpr, N_TILES: tl.constexpr, N_BLOCKS: tl.constexpr,
               BLOCK: tl.constexpr):  # fmt: skip
    image, tile = tl.program_id(1).to(tl.int64), tl.program_id(0)
    cov += image * D * D
    index = tl.arange(0, SPAN)
    trace, alive = trace_of(tl.load(cov + index * (D + 1), mask=index < D, other=0.0), D, 0.0)
    tl.store(scales + 2 * image, trace)
    tl.store(scales + 2 * image + 1, alive)
    rows, columns, at, inside, diagonal = _square(tile, D, N_BLOCKS, BLOCK)
    value = tl.load(cov + _place(rows, columns, D, False), mask=inside, other=0.0) / trace
    value += tl.where(diagonal & inside, (1.0 - alive) / D, 0.0)
    tl.store(sigma + (image * N_TILES + tile) * (BLOCK * BLOCK) + at, value)


@triton.jit
def _divide(s, out, totals, power, D, SPAN: tl.constexpr, N_TILES: tl.constexpr, N_BLOCKS: tl.constexpr,
            BLOCK: tl.constexpr):  # fmt: skip
    image, tile = tl.program_id(1).to(tl.int64), tl.program_id(0)
    s += image * (N_TILES * BLOCK * BLOCK)
    index = tl.arange(0, SPAN)
    spots = diagonal_places(index, N_BLOCKS, BLOCK)
    trace, alive = trace_of(tl.load(s + spots, mask=index < D, other=0.0), D, 0.0)
    tl.store(totals + 2 * image, trace)
    tl.store(totals + 2 * image + 1, alive)
    rows, columns, at, inside, _ = _square(tile, D, N_BLOCKS, BLOCK)
    value = tl.load(s + tile * (BLOCK * BLOCK) + at) * _power(trace, -power)
    upper = inside & (rows[:, None] <= columns[None, :])
    tl.store(out + image * (D * (D + 1) // 2) + _place(rows, columns, D, True), value, mask=upper)


@triton.jit
def _spread(grad, out, totals, d_s, power, D, CHUNK: tl.constexpr, N_TILES: tl.constexpr, N_BLOCKS: tl.constexpr,
            BLOCK: tl.constexpr):  # fmt: skip
    image, size = tl.program_id(0).to(tl.int64), D * (D + 1) // 2
    grad += image * size
    out += image * size
    trace, alive = tl.load(totals + 2 * image), tl.load(totals + 2 * image + 1)
    factor, along = _power(trace, -power), tl.zeros((CHUNK,), dtype=tl.float32)
    for begin in range(0, size, CHUNK):
        index = begin + tl.arange(0, CHUNK)
        given = tl.load(grad + index, mask=index < size, other=0.0)
        along += given * tl.load(out + index, mask=index < size, other=0.0)
    shift = power * alive * tl.sum(along) / trace
    for tile in range(0, N_TILES):
        rows, columns, at, inside, diagonal = _square(tile, D, N_BLOCKS, BLOCK)
        given = factor * tl.load(grad + _place(rows, columns, D, True), mask=inside, other=0.0)
        value = tl.where(diagonal, given - shift, 0.5 * given)
        tl.store(d_s + (image * N_TILES + tile) * (BLOCK * BLOCK) + at, tl.where(inside, value, 0.0))


@triton.jit
def _gather(d_sigma, d_first, sigma, scales, d_cov, D, N_TILES: tl.constexpr, N_BLOCKS: tl.constexpr,
            BLOCK: tl.constexpr):  # fmt: skip
    image, first = tl.program_id(0).to(tl.int64), tl.program_id(0).to(tl.int64) * (N_TILES * BLOCK * BLOCK)
    d_sigma += first
    d_first += first
    sigma += first
    trace, alive = tl.load(scales + 2 * image), tl.load(scales + 2 * image + 1)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for tile in range(0, N_TILES):
        _, _, at, _, _ = _square(tile, D, N_BLOCKS, BLOCK)
        _, _, on_diagonal = tile_corner(tile, N_BLOCKS, BLOCK)
        at += tile * (BLOCK * BLOCK)
        grad = tl.load(d_sigma + at) + tl.load(d_first + at)
        total += tl.where(on_diagonal, 1.0, 2.0) * grad * tl.load(sigma + at)
    along = alive * tl.sum(total)
    d_cov += image * D * D
    for tile in range(0, N_TILES):
        rows, columns, at, inside, diagonal = _square(tile, D, N_BLOCKS, BLOCK)
        at += tile * (BLOCK * BLOCK)
        grad = (tl.load(d_sigma + at) + tl.load(d_first + at) - tl.where(diagonal, along, 0.0)) / trace
        tl.store(d_cov + _place(rows, columns, D, False), grad, mask=inside & (rows[:, None] <= columns[None, :]))
        above = columns[:, None] > rows[None, :]
        tl.store(d_cov + _place(columns, rows, D, False), tl.trans(grad), mask=tl.trans(inside) & above)


def _sizes(D: int) -> dict[str, int]:
    n_blocks = triton.cdiv(D, block_of(D))
    return {"N_TILES": n_blocks * (n_blocks + 1) // 2, "N_BLOCKS": n_blocks, "BLOCK": block_of(D)}


def to_tiles(source: Tensor, D: int, cotangent: bool = False) -> Tensor:
    """Tiles of symmetric matrices (B, D, D) or vectors (B, D(D+1)/2), or of the symmetric part of their cotangents."""
    tiles = source.new_empty(tiled_shape(len(source), D))
    if len(source):
        grid = (tiles.shape[1], len(source))
        _to_tiles[grid](source, tiles, D, VECTOR=source.ndim == 2, SYMMETRIZE=cotangent, **_sizes(D))
    return tiles


def from_tiles(tiles: Tensor, D: int, vector: bool = False) -> Tensor:
    """The matrices (B, D, D) or vectors (B, D(D+1)/2) of tiles."""
    batch = len(tiles)
    out = tiles.new_empty((batch, D * (D + 1) // 2) if vector else (batch, D, D))
    if batch:
        _from_tiles[(tiles.shape[1], batch)](tiles, out, D, VECTOR=vector, **_sizes(D))
    return out


def normalize(cov: Tensor) -> tuple[Tensor, Tensor]:
    """Tiles of Σ/tr Σ, of I/D without variance, for matrices (B, D, D); and (B, 2): the trace, whether it counts."""
    batch, D, _ = cov.shape
    sigma, scales = cov.new_empty(tiled_shape(batch, D)), cov.new_empty((batch, 2))
    if batch:
        _normalize[(sigma.shape[1], batch)](cov, sigma, scales, D, SPAN=triton.next_power_of_2(D), **_sizes(D))
    return sigma, scales


def divide(s: Tensor, power: float, D: int) -> tuple[Tensor, Tensor]:
    """The vectors of S/tr(S)^power for tiles of S; and (B, 2): the trace, and whether it counts."""
    out, totals = s.new_empty((len(s), D * (D + 1) // 2)), s.new_empty((len(s), 2))
    if len(s):
        _divide[(s.shape[1], len(s))](s, out, totals, power, D, SPAN=triton.next_power_of_2(D), **_sizes(D))
    return out, totals


def spread(grad: Tensor, out: Tensor, totals: Tensor, power: float, D: int) -> Tensor:
    """Tiles of the cotangent of S for that of the vector ``out`` of :func:`divide`."""
    d_s = out.new_empty(tiled_shape(len(out), D))
    if len(out):
        _spread[(len(out),)](grad, out, totals, d_s, power, D, CHUNK=2048, num_warps=8, **_sizes(D))
    return d_s


def gather(d_sigma: Tensor, d_first: Tensor, sigma: Tensor, scales: Tensor, D: int) -> Tensor:
    """The cotangent of Σ (B, D, D) for the sum of two tiled cotangents of :func:`normalize`'s result."""
    d_cov = sigma.new_empty((len(sigma), D, D))
    if len(sigma):
        _gather[(len(sigma),)](d_sigma, d_first, sigma, scales, d_cov, D, num_warps=8, **_sizes(D))
    return d_cov
