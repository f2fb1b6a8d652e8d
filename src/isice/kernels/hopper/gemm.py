"""Asynchronous MMA of the Hopper kernel's consumer warps, on the k-slices of the ring.

The MMAs of a k-slice are awaited, and its buffer released, after those of the next one have been
issued.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

from .pipeline import next_buffer, previous_buffer, untransposed

WARPS = 4  # of the consumer
_ACCUMULATOR: gl.constexpr = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, 64, 16]))


@gluon.jit
def _left(tile, TRANSPOSED: gl.constexpr, CONFIG: gl.constexpr):
    return tile.permute((1, 0)) if TRANSPOSED else untransposed(tile, CONFIG)


@gluon.jit
def _right(tile, TRANSPOSED: gl.constexpr, CONFIG: gl.constexpr):
    return tile if TRANSPOSED else untransposed(tile, CONFIG).permute((1, 0))


@gluon.jit
def _factors(tiles, first, LEFT: gl.constexpr, RIGHT: gl.constexpr, CONFIG: gl.constexpr):
    """Return the planes of both factors; LEFT and RIGHT say which are stored transposed."""
    c = _right(tiles.index(first), RIGHT, CONFIG)
    a = _left(tiles.index(first + CONFIG.PLANES), LEFT, CONFIG)
    c_low, a_low = c, a
    if CONFIG.PLANES == 2:
        c_low = _right(tiles.index(first + 1), RIGHT, CONFIG)
        a_low = _left(tiles.index(first + 3), LEFT, CONFIG)
    return a, a_low, c, c_low


@gluon.jit
def _wait_mma(total, d_total, N: gl.constexpr, DERIVATIVE: gl.constexpr):
    """Wait until at most N MMAs are in flight; an accumulator without MMAs takes no part."""
    if DERIVATIVE:
        total, d_total = warpgroup_mma_wait(N, (total, d_total))
    else:
        total = warpgroup_mma_wait(N, (total,))
    return total, d_total


@gluon.jit
def _issue_mma(total, d_total, a, da, c, dc, DERIVATIVE: gl.constexpr):
    """Issue the MMAs of AC and, for derivatives, of dA·C + A·dC."""
    total = warpgroup_mma(a, c, total, is_async=True)
    if DERIVATIVE:
        d_total = warpgroup_mma(da, c, d_total, is_async=True)
        d_total = warpgroup_mma(a, dc, d_total, is_async=True)
    return total, d_total


@gluon.jit
def _accumulate(
    total, d_total, ring, buffer, phase, begin, end, LEFT: gl.constexpr, RIGHT: gl.constexpr, CONFIG: gl.constexpr
):
    """Add the products over a range of the inner index; LEFT, RIGHT as in :func:`_factors`."""
    DERIVATIVE: gl.constexpr = CONFIG.DERIVATIVE
    PLANES: gl.constexpr = CONFIG.PLANES
    FACTORS: gl.constexpr = 4 if DERIVATIVE else 2
    PRODUCTS: gl.constexpr = (3 if DERIVATIVE else 1) * (3 if PLANES == 2 else 1)
    for start in range(begin, end, CONFIG.BLOCK_K):
        mbarrier.wait(ring.full.index(buffer), phase)
        first = buffer * (FACTORS * PLANES)
        a, a_low, c, c_low = _factors(ring.tiles, first, LEFT, RIGHT, CONFIG)
        da, da_low, dc, dc_low = a, a_low, c, c_low
        if DERIVATIVE:
            da, da_low, dc, dc_low = _factors(ring.tiles, first + 2 * PLANES, LEFT, RIGHT, CONFIG)
        if PLANES == 2:
            total, d_total = _issue_mma(total, d_total, a_low, da_low, c, dc, DERIVATIVE)
            total, d_total = _issue_mma(total, d_total, a, da, c_low, dc_low, DERIVATIVE)
        total, d_total = _issue_mma(total, d_total, a, da, c, dc, DERIVATIVE)
        total, d_total = _wait_mma(total, d_total, PRODUCTS, DERIVATIVE)
        mbarrier.arrive(ring.empty.index(previous_buffer(buffer, CONFIG.DEPTH)), pred=start > 0)
        buffer, phase = next_buffer(buffer, phase, CONFIG.DEPTH)
    return total, d_total, buffer, phase


@gluon.jit
def multiply(ring, buffer, phase, corner, CONFIG: gl.constexpr):
    """Return a tile of AC and of dA·C + A·dC (or zero), the next buffer and its parity."""
    BLOCK: gl.constexpr = CONFIG.BLOCK
    SIDE: gl.constexpr = CONFIG.SIDE
    total = gl.zeros((BLOCK, BLOCK), gl.float32, _ACCUMULATOR)
    # Without this wait the compiler may zero the accumulators after the first MMA, and would
    # then serialise all MMAs.
    total, d_total = _wait_mma(total, total, 0, CONFIG.DERIVATIVE)
    # At inner indices before the tile's row both factors are stored transposed, then before its
    # column the right one, then neither.
    bounds = 0, corner.row, corner.column, SIDE
    for part in gl.static_range(3):
        total, d_total, buffer, phase = _accumulate(
            total, d_total, ring, buffer, phase, bounds[part], bounds[part + 1], part == 0, part < 2, CONFIG
        )
    total, d_total = _wait_mma(total, d_total, 0, CONFIG.DERIVATIVE)
    mbarrier.arrive(ring.empty.index(previous_buffer(buffer, CONFIG.DEPTH)))
    return total, d_total, buffer, phase
