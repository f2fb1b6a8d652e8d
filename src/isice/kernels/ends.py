"""What stands before and after an iteration, each one launch: matrices and vectors to tiles and back, with scales.

A *vector* is the upper triangle of a symmetric matrix, row by row, as of ``vectorize``; in a cotangent each of its
entries off the diagonal stands for two of the matrix.
"""

import triton
import triton.language as tl
from torch import Tensor

from .program import tiled_shape, tiling
from .tiles import diagonal_places, tile_corner, trace_of

_CHUNK = 4096


@triton.jit
def _power(value, exponent):
    return tl.exp2(exponent * tl.log2(value))


@triton.jit
def _place(rows, columns, D, VECTOR: tl.constexpr):
    """Offsets of entries on or above the diagonal, in a matrix or in a vector."""
    if VECTOR:
        return (rows * D - rows * (rows + 1) // 2)[:, None] + columns[None, :]
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
def _load(source, rows, columns, D, inside, VECTOR: tl.constexpr):
    """A tile; of a vector, the entries below the diagonal are those above it."""
    if not VECTOR:
        return tl.load(source + _place(rows, columns, D, False), mask=inside, other=0.0)
    upper = inside & (rows[:, None] <= columns[None, :])
    value = tl.load(source + _place(rows, columns, D, True), mask=upper, other=0.0)
    return tl.where(rows[:, None] > columns[None, :], tl.trans(value), value)


@triton.jit
def _to_tiles(source, tiles, D, VECTOR: tl.constexpr, SYMMETRIZE: tl.constexpr, N_TILES: tl.constexpr,
              N_BLOCKS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    image, tile = (tl.program_id(0) // N_TILES).to(tl.int64), tl.program_id(0) % N_TILES
    rows, columns, at, inside, diagonal = _square(tile, D, N_BLOCKS, BLOCK)
    source += image * (D * (D + 1) // 2 if VECTOR else D * D)
    value = _load(source, rows, columns, D, inside, VECTOR)
    if SYMMETRIZE and VECTOR:
        value = tl.where(diagonal, value, 0.5 * value)
    elif SYMMETRIZE:
        mirrored = tl.load(source + _place(columns, rows, D, False), mask=tl.trans(inside), other=0.0)
        value = 0.5 * (value + tl.trans(mirrored))
    tl.store(tiles + (image * N_TILES + tile) * (BLOCK * BLOCK) + at, value)


@triton.jit
def _from_tiles(tiles, out, D, VECTOR: tl.constexpr, N_TILES: tl.constexpr, N_BLOCKS: tl.constexpr,
                BLOCK: tl.constexpr):  # fmt: skip
    image, tile = (tl.program_id(0) // N_TILES).to(tl.int64), tl.program_id(0) % N_TILES
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
    image, tile = (tl.program_id(0) // N_TILES).to(tl.int64), tl.program_id(0) % N_TILES
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
    image, tile = (tl.program_id(0) // N_TILES).to(tl.int64), tl.program_id(0) % N_TILES
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
def _products(grad, out, sums, D, n_sums, CHUNK: tl.constexpr):
    """The inner product of a chunk of grad and out, and the norm of that of grad; squares need the range of float64."""
    image, chunk, size = (tl.program_id(0) // n_sums).to(tl.int64), tl.program_id(0) % n_sums, D * (D + 1) // 2
    index = chunk * CHUNK + tl.arange(0, CHUNK)
    given = tl.load(grad + image * size + index, mask=index < size, other=0.0)
    value = tl.load(out + image * size + index, mask=index < size, other=0.0)
    spot = sums + (image * n_sums + chunk) * 2
    tl.store(spot, tl.sum(given * value))
    tl.store(spot + 1, tl.sqrt(tl.sum(given.to(tl.float64) * given.to(tl.float64))).to(tl.float32))


@triton.jit
def _spread(grad, sums, totals, d_s, norms, power, D, n_sums, SPAN: tl.constexpr, N_TILES: tl.constexpr,
            N_BLOCKS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    image, tile = (tl.program_id(0) // N_TILES).to(tl.int64), tl.program_id(0) % N_TILES
    trace, alive = tl.load(totals + 2 * image), tl.load(totals + 2 * image + 1)
    spots = tl.arange(0, SPAN)
    spot = sums + (image * n_sums + spots) * 2
    along = tl.sum(tl.load(spot, mask=spots < n_sums, other=0.0))
    norm = tl.load(spot + 1, mask=spots < n_sums, other=0.0).to(tl.float64)
    factor = _power(trace, -power)
    shift = power * alive * along / trace
    norm = tl.sqrt(tl.sum(norm * norm)).to(tl.float32)
    tl.store(norms + image, factor * norm + tl.abs(shift) * tl.sqrt(D * 1.0))
    rows, columns, at, inside, diagonal = _square(tile, D, N_BLOCKS, BLOCK)
    given = factor * _load(grad + image * (D * (D + 1) // 2), rows, columns, D, inside, True)
    value = tl.where(diagonal, given - shift, 0.5 * given)
    tl.store(d_s + (image * N_TILES + tile) * (BLOCK * BLOCK) + at, tl.where(inside, value, 0.0))


@triton.jit
def _norms(matrices, norms, size, CHUNK: tl.constexpr):
    matrices += tl.program_id(0).to(tl.int64) * size
    total = tl.zeros((CHUNK,), dtype=tl.float64)
    for begin in range(0, size, CHUNK):
        index = begin + tl.arange(0, CHUNK)
        value = tl.load(matrices + index, mask=index < size, other=0.0).to(tl.float64)
        total += value * value
    tl.store(norms + tl.program_id(0), tl.sqrt(tl.sum(total)).to(tl.float32))


@triton.jit
def _weigh(d_sigma, d_first, sigma, sums, D, N_TILES: tl.constexpr, N_BLOCKS: tl.constexpr, BLOCK: tl.constexpr):
    """The inner product of a tile of both cotangents with one of Σ'; off the diagonal it stands for two."""
    image, tile = (tl.program_id(0) // N_TILES).to(tl.int64), tl.program_id(0) % N_TILES
    _, _, at, _, _ = _square(tile, D, N_BLOCKS, BLOCK)
    _, _, on_diagonal = tile_corner(tile, N_BLOCKS, BLOCK)
    at += (image * N_TILES + tile) * (BLOCK * BLOCK)
    grad = tl.load(d_sigma + at) + tl.load(d_first + at)
    total = tl.sum(grad * tl.load(sigma + at))
    tl.store(sums + image * N_TILES + tile, tl.where(on_diagonal, 1.0, 2.0) * total)


@triton.jit
def _gather(d_sigma, d_first, sums, scales, d_cov, D, N_TILES: tl.constexpr, N_BLOCKS: tl.constexpr,
            BLOCK: tl.constexpr):  # fmt: skip
    image, tile = (tl.program_id(0) // N_TILES).to(tl.int64), tl.program_id(0) % N_TILES
    trace, alive = tl.load(scales + 2 * image), tl.load(scales + 2 * image + 1)
    every = tl.arange(0, triton.next_power_of_2(N_TILES))
    along = alive * tl.sum(tl.load(sums + image * N_TILES + every, mask=every < N_TILES, other=0.0))
    rows, columns, at, inside, diagonal = _square(tile, D, N_BLOCKS, BLOCK)
    at += (image * N_TILES + tile) * (BLOCK * BLOCK)
    grad = (tl.load(d_sigma + at) + tl.load(d_first + at) - tl.where(diagonal, along, 0.0)) / trace
    d_cov += image * D * D
    tl.store(d_cov + _place(rows, columns, D, False), grad, mask=inside & (rows[:, None] <= columns[None, :]))
    above = columns[:, None] > rows[None, :]
    tl.store(d_cov + _place(columns, rows, D, False), tl.trans(grad), mask=tl.trans(inside) & above)


def _sizes(D: int) -> dict[str, int]:
    return dict(zip(("BLOCK", "N_BLOCKS", "N_TILES"), tiling(D), strict=True))


def to_tiles(source: Tensor, D: int, cotangent: bool = False) -> Tensor:
    """Tiles of symmetric matrices (B, D, D) or vectors (B, D(D+1)/2), or of the symmetric part of their cotangents."""
    tiles = source.new_empty(tiled_shape(len(source), D))
    if len(source):
        grid = (tiles.shape[1] * len(source),)
        _to_tiles[grid](source, tiles, D, VECTOR=source.ndim == 2, SYMMETRIZE=cotangent, **_sizes(D))
    return tiles


def from_tiles(tiles: Tensor, D: int, vector: bool = False) -> Tensor:
    """The matrices (B, D, D) or vectors (B, D(D+1)/2) of tiles."""
    batch = len(tiles)
    out = tiles.new_empty((batch, D * (D + 1) // 2) if vector else (batch, D, D))
    if batch:
        _from_tiles[(tiles.shape[1] * batch,)](tiles, out, D, VECTOR=vector, **_sizes(D))
    return out


def normalize(cov: Tensor) -> tuple[Tensor, Tensor]:
    """Tiles of Σ/tr Σ, of I/D without variance, for matrices (B, D, D); and (B, 2): the trace, whether it counts."""
    batch, D, _ = cov.shape
    sigma, scales = cov.new_empty(tiled_shape(batch, D)), cov.new_empty((batch, 2))
    if batch:
        _normalize[(sigma.shape[1] * batch,)](cov, sigma, scales, D, SPAN=triton.next_power_of_2(D), **_sizes(D))
    return sigma, scales


def divide(s: Tensor, power: float, D: int) -> tuple[Tensor, Tensor]:
    """The vectors of S/tr(S)^power for tiles of S; and (B, 2): the trace, and whether it counts."""
    out, totals = s.new_empty((len(s), D * (D + 1) // 2)), s.new_empty((len(s), 2))
    if len(s):
        _divide[(s.shape[1] * len(s),)](s, out, totals, power, D, SPAN=triton.next_power_of_2(D), **_sizes(D))
    return out, totals


def norms_of(matrices: Tensor) -> Tensor:
    """Norms (B,) of tiled matrices, over their tiles; squares need the range of float64."""
    norms = matrices.new_empty(len(matrices))
    if len(matrices):
        _norms[(len(matrices),)](matrices, norms, matrices[0].numel(), CHUNK=_CHUNK, num_warps=8)
    return norms


def spread(grad: Tensor, out: Tensor, totals: Tensor, power: float, D: int) -> tuple[Tensor, Tensor]:
    """Tiles of the cotangent of S for that of the vector ``out`` of :func:`divide`; and a bound on its norm (B,)."""
    batch, n_sums = len(out), triton.cdiv(out.shape[1], _CHUNK)
    d_s, norms, sums = out.new_empty(tiled_shape(batch, D)), out.new_empty(batch), out.new_empty((batch, n_sums, 2))
    if batch:
        _products[(n_sums * batch,)](grad, out, sums, D, n_sums, CHUNK=_CHUNK)
        span = triton.next_power_of_2(n_sums)
        _spread[(d_s.shape[1] * batch,)](grad, sums, totals, d_s, norms, power, D, n_sums, SPAN=span, **_sizes(D))
    return d_s, norms


def gather(d_sigma: Tensor, d_first: Tensor, sigma: Tensor, scales: Tensor, D: int) -> Tensor:
    """The cotangent of Σ (B, D, D) for the sum of two tiled cotangents of :func:`normalize`'s result."""
    d_cov, sums = sigma.new_empty((len(sigma), D, D)), sigma.new_empty(sigma.shape[:2])
    if len(sigma):
        grid = (sigma.shape[1] * len(sigma),)
        _weigh[grid](d_sigma, d_first, sigma, sums, D, **_sizes(D))
        _gather[grid](d_sigma, d_first, sums, scales, d_cov, D, **_sizes(D))
    return d_cov
