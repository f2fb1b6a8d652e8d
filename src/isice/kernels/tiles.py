"""Square tiles of symmetric matrices: how they are numbered, split into halves, loaded and stored.

Between launches a batch of matrices lies *tiled*: float32 (B, tiles, BLOCK, BLOCK), the tiles on and above the
diagonal, row by row, zero beyond D. While an iteration runs, its matrices live in the slots of a workspace, whole, as
one or two planes of 16-bit numbers whose sum is the value. Only tiles on or above the diagonal are computed; the others
are mirrored.
"""

import triton
import triton.language as tl

# As in ops/_trace.py: a matrix with less variance counts as zero.
_NO_VARIANCE: tl.constexpr = tl.constexpr(1e-14)


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
def diagonal_places(index, N_BLOCKS: tl.constexpr, BLOCK: tl.constexpr):
    """Offsets of entries of the diagonal of a tiled matrix."""
    block = index // BLOCK
    tile = block * N_BLOCKS - block * (block - 1) // 2
    return tile * BLOCK * BLOCK + (index % BLOCK) * (BLOCK + 1)


@triton.jit
def trace_of(diagonal, D, shift):
    """The trace of a matrix plus ``shift``·I, or one where there is no variance; and 1 where it counts."""
    total = tl.sum(diagonal) + D * shift
    alive = tl.where(total > _NO_VARIANCE, 1.0, 0.0)
    return tl.where(alive > 0, total, 1.0), alive


@triton.jit
def load_planes(workspace, slot, rows, columns, SIDE: tl.constexpr, PLANES: tl.constexpr):
    """The planes of a tile of a slot; with one plane the second is a copy that nobody reads."""
    plane = workspace + slot * (PLANES * SIDE * SIDE) + rows[:, None] * SIDE + columns[None, :]
    high = tl.load(plane)
    low = high
    if PLANES == 2:
        low = tl.load(plane + SIDE * SIDE)
    return high, low


@triton.jit
def value_of(planes, PLANES: tl.constexpr):
    """Such a tile in float32."""
    value = planes[0].to(tl.float32)
    if PLANES == 2:
        value += planes[1].to(tl.float32)
    return value


@triton.jit
def split(value, DTYPE: tl.constexpr):
    """The nearest numbers of 16 bits to those of float32, and what is missing."""
    high = value.to(DTYPE)
    return high, (value - high.to(tl.float32)).to(DTYPE)


@triton.jit
def store_value(workspace, slot, value, rows, columns, mirror, SIDE: tl.constexpr, PLANES: tl.constexpr):
    """Splits a float32 tile into the planes of a slot, if ``mirror`` with its mirror image."""
    straight = rows[:, None] * SIDE + columns[None, :]
    plane = workspace + slot * (PLANES * SIDE * SIDE)
    high, low = split(value, workspace.dtype.element_ty)
    tl.store(plane + straight, high)
    if PLANES == 2:
        tl.store(plane + SIDE * SIDE + straight, low)
    if mirror:
        across = columns[:, None] * SIDE + rows[None, :]
        tl.store(plane + across, tl.trans(high))
        if PLANES == 2:
            tl.store(plane + SIDE * SIDE + across, tl.trans(low))
