"""Storage of symmetric matrices: tiled and packed in HBM, as planes of float16 in the workspace.

*Tiled*: float32 (B, tiles, BLOCK, BLOCK), the tiles on and above the diagonal, row by row, zero
beyond D.
*Packed*: the upper triangle (B, D(D+1)/2), row by row, as of ``vectorize``. In a cotangent each
packed entry off the diagonal stands for two of the matrix.
*Workspace*: whole matrices in slots, as one or two planes of float16 whose sum is the value.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

_CHUNK = 4096


class Tiling(NamedTuple):
    """Division of a matrix into square tiles; a compile-time argument of kernels."""

    BLOCK: int  # side of a tile
    N_BLOCKS: int  # tiles in a row of tiles
    N_TILES: int  # tiles on and above the diagonal


class Corner(NamedTuple):
    """Position of a tile in its matrix."""

    row: Any  # first row
    column: Any  # first column
    on_diagonal: Any


class TileIndices(NamedTuple):
    """Indices of the entries of a tile."""

    rows: Any  # (BLOCK,)
    columns: Any  # (BLOCK,)
    offsets: Any  # (BLOCK, BLOCK), within the tile
    inside: Any  # (BLOCK, BLOCK), whether the entry exists
    diagonal: Any  # (BLOCK, BLOCK), whether it is on the diagonal


def tile_side(D: int) -> int:
    """Return the side of a tile; small diagonal tiles compute fewer entries twice."""
    return 64 if D > 32 else 32 if D > 16 else 16


def tiling(D: int, block: int | None = None) -> Tiling:
    """Divide matrices of D rows into tiles."""
    block = block or tile_side(D)
    n_blocks = -(-D // block)
    return Tiling(block, n_blocks, n_blocks * (n_blocks + 1) // 2)


def tiled_shape(batch: int, D: int) -> tuple[int, int, int, int]:
    """Return the shape of a batch of tiled matrices."""
    block, _, n_tiles = tiling(D)
    return batch, n_tiles, block, block


@triton.jit
def tile_corner(tile, N_BLOCKS: tl.constexpr, BLOCK: tl.constexpr):
    """Locate a tile of the upper half, counted row by row."""
    block_row, before = 0, 0
    for i in tl.static_range(1, N_BLOCKS):
        start = i * N_BLOCKS - i * (i - 1) // 2
        block_row = tl.where(tile >= start, i, block_row)
        before = tl.where(tile >= start, start, before)
    block_column = block_row + tile - before
    return Corner(block_row * BLOCK, block_column * BLOCK, block_row == block_column)


@triton.jit
def diagonal_offsets(index, N_BLOCKS: tl.constexpr, BLOCK: tl.constexpr):
    """Offsets of entries of the diagonal of a tiled matrix."""
    block = index // BLOCK
    tile = block * N_BLOCKS - block * (block - 1) // 2
    return tile * BLOCK * BLOCK + (index % BLOCK) * (BLOCK + 1)


@triton.jit
def matrix_offsets(rows, columns, D, PACKED: tl.constexpr):
    """Offsets of entries on or above the diagonal, in a matrix or in a packed triangle."""
    if PACKED:
        return (rows * D - rows * (rows + 1) // 2)[:, None] + columns[None, :]
    return rows[:, None] * D + columns[None, :]


@triton.jit
def tile_indices(tile, D, TILING: tl.constexpr):
    """Return the indices of the entries of a tile of a matrix of D rows."""
    corner = tile_corner(tile, TILING.N_BLOCKS, TILING.BLOCK)
    line = tl.arange(0, TILING.BLOCK)
    rows, columns = corner.row + line, corner.column + line
    inside = (rows < D)[:, None] & (columns < D)[None, :]
    offsets = line[:, None] * TILING.BLOCK + line[None, :]
    return TileIndices(rows, columns, offsets, inside, rows[:, None] == columns[None, :])


@triton.jit
def image_and_tile(TILING: tl.constexpr):
    """Return matrix, tile and the tile's offset of a program; one program computes one tile."""
    image, tile = (tl.program_id(0) // TILING.N_TILES).to(tl.int64), tl.program_id(0) % TILING.N_TILES
    return image, tile, (image * TILING.N_TILES + tile) * (TILING.BLOCK * TILING.BLOCK)


@triton.jit
def load_packed(source, at, D):
    """Load a tile of a packed triangle, mirroring the entries below the diagonal."""
    upper = at.inside & (at.rows[:, None] <= at.columns[None, :])
    value = tl.load(source + matrix_offsets(at.rows, at.columns, D, True), mask=upper, other=0.0)
    return tl.where(at.rows[:, None] > at.columns[None, :], tl.trans(value), value)


@triton.jit
def store_symmetric(out, value, at, D):
    """Store a tile and its mirror image in a matrix."""
    upper = at.inside & (at.rows[:, None] <= at.columns[None, :])
    tl.store(out + matrix_offsets(at.rows, at.columns, D, False), value, mask=upper)
    above = at.columns[:, None] > at.rows[None, :]
    tl.store(out + matrix_offsets(at.columns, at.rows, D, False), tl.trans(value), mask=tl.trans(at.inside) & above)


@triton.jit
def load_planes(slots, slot, rows, columns, SIDE: tl.constexpr, PLANES: tl.constexpr):
    """Load the planes of a tile of a slot; with one plane, the second is an unused copy."""
    plane = slots + slot * (PLANES * SIDE * SIDE) + rows[:, None] * SIDE + columns[None, :]
    high = tl.load(plane)
    low = high
    if PLANES == 2:
        low = tl.load(plane + SIDE * SIDE)
    return high, low


@triton.jit
def join(planes, PLANES: tl.constexpr):
    """Return the float32 value of a tile of planes."""
    value = planes[0].to(tl.float32)
    if PLANES == 2:
        value += planes[1].to(tl.float32)
    return value


@triton.jit
def split(value, DTYPE: tl.constexpr):
    """Round float32 to 16 bits; return the rounded value and the remainder, both of 16 bits."""
    high = value.to(DTYPE)
    return high, (value - high.to(tl.float32)).to(DTYPE)


@triton.jit
def store_planes(slots, slot, value, rows, columns, mirror, SIDE: tl.constexpr, PLANES: tl.constexpr):
    """Store a float32 tile as the planes of a slot and, if ``mirror``, its mirror image."""
    straight = rows[:, None] * SIDE + columns[None, :]
    plane = slots + slot * (PLANES * SIDE * SIDE)
    high, low = split(value, slots.dtype.element_ty)
    tl.store(plane + straight, high)
    if PLANES == 2:
        tl.store(plane + SIDE * SIDE + straight, low)
    if mirror:
        across = columns[:, None] * SIDE + rows[None, :]
        tl.store(plane + across, tl.trans(high))
        if PLANES == 2:
            tl.store(plane + SIDE * SIDE + across, tl.trans(low))


@triton.jit
def _to_tiles(source, tiles, D, PACKED: tl.constexpr, SYMMETRIZE: tl.constexpr, TILING: tl.constexpr):
    image, tile, first = image_and_tile(TILING)
    at = tile_indices(tile, D, TILING)
    if PACKED:
        value = load_packed(source + image * (D * (D + 1) // 2), at, D)
        if SYMMETRIZE:
            value = tl.where(at.diagonal, value, 0.5 * value)
    else:
        source += image * D * D
        value = tl.load(source + matrix_offsets(at.rows, at.columns, D, False), mask=at.inside, other=0.0)
        if SYMMETRIZE:
            across = source + matrix_offsets(at.columns, at.rows, D, False)
            value = 0.5 * (value + tl.trans(tl.load(across, mask=tl.trans(at.inside), other=0.0)))
    tl.store(tiles + first + at.offsets, value)


@triton.jit
def _from_tiles(tiles, out, D, PACKED: tl.constexpr, TILING: tl.constexpr):
    image, tile, first = image_and_tile(TILING)
    at = tile_indices(tile, D, TILING)
    value = tl.load(tiles + first + at.offsets)
    if PACKED:
        out += image * (D * (D + 1) // 2)
        upper = at.inside & (at.rows[:, None] <= at.columns[None, :])
        tl.store(out + matrix_offsets(at.rows, at.columns, D, True), value, mask=upper)
    else:
        store_symmetric(out + image * D * D, value, at, D)


@triton.jit
def _norms(matrices, norms, size, CHUNK: tl.constexpr):
    matrices += tl.program_id(0).to(tl.int64) * size
    total = tl.zeros((CHUNK,), dtype=tl.float64)
    for begin in range(0, size, CHUNK):
        index = begin + tl.arange(0, CHUNK)
        value = tl.load(matrices + index, mask=index < size, other=0.0).to(tl.float64)
        total += value * value
    tl.store(norms + tl.program_id(0), tl.sqrt(tl.sum(total)).to(tl.float32))


def to_tiles(source: Tensor, D: int, cotangent: bool = False) -> Tensor:
    """Tile symmetric matrices, (B, D, D) or packed, or the symmetric part of their cotangents."""
    tiles = source.new_empty(tiled_shape(len(source), D))
    if len(source):
        grid = (tiles.shape[1] * len(source),)
        _to_tiles[grid](source, tiles, D, PACKED=source.ndim == 2, SYMMETRIZE=cotangent, TILING=tiling(D))
    return tiles


def from_tiles(tiles: Tensor, D: int, packed: bool = False) -> Tensor:
    """Return the matrices (B, D, D) or packed triangles (B, D(D+1)/2) of tiles."""
    batch = len(tiles)
    out = tiles.new_empty((batch, D * (D + 1) // 2) if packed else (batch, D, D))
    if batch:
        _from_tiles[(tiles.shape[1] * batch,)](tiles, out, D, PACKED=packed, TILING=tiling(D))
    return out


def norms_of(matrices: Tensor) -> Tensor:
    """Return Frobenius norms (B,) of tiled matrices, by sums in float64, which cannot overflow."""
    norms = matrices.new_empty(len(matrices))
    if len(matrices):
        _norms[(len(matrices),)](matrices, norms, matrices[0].numel(), CHUNK=_CHUNK, num_warps=8)
    return norms
