"""Square tiles of symmetric matrices: where they lie, how they are split into halves, multiplied and stored.

A matrix in memory is float32, either whole (D, D) or *packed*: its upper triangle, row by row, as of ``vectorize``.
While an iteration runs, its matrices live in the slots of a workspace, padded to whole tiles, as one or two planes of
16-bit numbers whose sum is the value. Only tiles on or above the diagonal are computed; the others are mirrored.
"""

import triton
import triton.language as tl

# As in ops/_trace.py: a matrix with less variance counts as zero.
_NO_VARIANCE: tl.constexpr = tl.constexpr(1e-14)


@triton.jit
def place(rows, columns, D, PACKED: tl.constexpr):
    """Offsets of the entries of a tile in a matrix of D columns; packed ones must have row ≤ column."""
    if PACKED:
        row, column = tl.minimum(rows[:, None], columns[None, :]), tl.maximum(rows[:, None], columns[None, :])
        return row * D - row * (row + 1) // 2 + column
    return rows[:, None] * D + columns[None, :]


@triton.jit
def place_on_diagonal(index, D, PACKED: tl.constexpr):
    """Offsets of entries of the diagonal."""
    if PACKED:
        return index * D - index * (index + 1) // 2 + index
    return index * (D + 1)


@triton.jit
def trace_of(matrix, D, shift, PACKED: tl.constexpr, SPAN: tl.constexpr):
    """The trace of a shifted matrix, or one where there is no variance; and 1 where the trace counts."""
    index = tl.arange(0, SPAN)
    diagonal = tl.load(matrix + place_on_diagonal(index, D, PACKED), mask=index < D, other=0.0)
    total = tl.sum(diagonal) + D * shift
    alive = tl.where(total > _NO_VARIANCE, 1.0, 0.0)
    return tl.where(alive > 0, total, 1.0), alive


@triton.jit
def tile_corner(tile, N_BLOCKS: tl.constexpr, BLOCK: tl.constexpr):
    """First row and column of a tile of the upper half, counted row by row, and whether it lies on the diagonal."""
    block_row, before = 0, 0
    for i in tl.static_range(1, N_BLOCKS):
        start = i * N_BLOCKS - i * (i - 1) // 2
        block_row = tl.where(tile >= start, i, block_row)
        before = tl.where(tile >= start, start, before)
    block_column = block_row + tile - before
    return block_row * BLOCK, block_column * BLOCK, block_row == block_column


@triton.jit
def load_tile(matrix, rows, columns, D, PACKED: tl.constexpr):
    """A tile of a symmetric matrix; zeros outside of it."""
    inside = (rows[:, None] < D) & (columns[None, :] < D)
    return tl.load(matrix + place(rows, columns, D, PACKED), mask=inside, other=0.0)


@triton.jit
def store_tile(matrix, value, rows, columns, D, PACKED: tl.constexpr):
    """Stores a tile on or above the diagonal, and its mirror image where the matrix is whole."""
    inside = (rows[:, None] < D) & (columns[None, :] < D)
    if PACKED:
        tl.store(matrix + place(rows, columns, D, True), value, mask=inside & (rows[:, None] <= columns[None, :]))
    else:
        tl.store(matrix + place(rows, columns, D, False), value, mask=inside)
        mirrored = (columns[:, None] < D) & (rows[None, :] < D)
        tl.store(matrix + place(columns, rows, D, False), tl.trans(value), mask=mirrored)


@triton.jit
def load_planes(workspace, slot, rows, columns, SIDE: tl.constexpr, PLANES: tl.constexpr):
    """The planes of a tile of a slot; with one plane the second is a copy that nobody reads."""
    offsets = rows[:, None] * SIDE + columns[None, :]
    high = tl.load(workspace + slot * (PLANES * SIDE * SIDE) + offsets)
    low = high
    if PLANES == 2:
        low = tl.load(workspace + (slot * 2 + 1) * (SIDE * SIDE) + offsets)
    return high, low


@triton.jit
def load_value(workspace, slot, rows, columns, SIDE: tl.constexpr, PLANES: tl.constexpr):
    """The float32 value of a tile of a slot, past the first cache level, where another block may have written it."""
    offsets = rows[:, None] * SIDE + columns[None, :]
    value = tl.load(workspace + slot * (PLANES * SIDE * SIDE) + offsets, cache_modifier=".cg").to(tl.float32)
    if PLANES == 2:
        low = tl.load(workspace + (slot * 2 + 1) * (SIDE * SIDE) + offsets, cache_modifier=".cg")
        value += low.to(tl.float32)
    return value


@triton.jit
def store_value(workspace, slot, value, rows, columns, diagonal, SIDE: tl.constexpr, PLANES: tl.constexpr):
    """Splits a float32 tile into the planes of a slot, with its mirror image unless it lies on the diagonal."""
    straight = rows[:, None] * SIDE + columns[None, :]
    across = columns[:, None] * SIDE + rows[None, :]
    plane = workspace + slot * (PLANES * SIDE * SIDE)
    high = value.to(workspace.dtype.element_ty)
    tl.store(plane + straight, high)
    if not diagonal:
        tl.store(plane + across, tl.trans(high))
    if PLANES == 2:
        low = (value - high.to(tl.float32)).to(workspace.dtype.element_ty)
        tl.store(plane + SIDE * SIDE + straight, low)
        if not diagonal:
            tl.store(plane + SIDE * SIDE + across, tl.trans(low))
