"""Products of tiles for the kernel for Hopper GPUs: one warp fetches the factors, four others multiply them.

The fetching warp fills a ring of buffers, in the order in which the others empty it; a buffer is given back once its
products have ended, mostly when those of the next one have begun. Tiles below the diagonal are fetched from their
mirror images, and multiplied as those lie.
"""

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

from .stage import D_SLOT
from .tiles import tile_corner

WARPS = 4  # that multiply
_SUM: gl.constexpr = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, 64, 16]))
# Names that changed after Triton 3.6.
_PUBLIC: gl.constexpr = gl.constexpr(hasattr(gl.shared_memory_descriptor, "reinterpret"))
_copy = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared


@gluon.jit
def _order_copies():
    """The copy engine sees what was stored before only after this fence, on both sides of a wait."""
    gl.inline_asm_elementwise(
        "fence.proxy.async.global; mov.u32 $0, 0;", "=r", [], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def arrive(counter):
    """Says that this block has come here; what it stored before is visible to those who wait."""
    _order_copies()
    tl.debug_barrier()
    gl.atomic_add(counter, 1, sem="release")


@gluon.jit
def wait_for(counter, target):
    """Returns once the blocks of the group have arrived so many times."""
    seen = gl.atomic_add(counter, 0, sem="acquire")
    while seen < target:
        seen = gl.atomic_add(counter, 0, sem="acquire")
    tl.debug_barrier()


@gluon.jit
def _next(buffer, phase, DEPTH: gl.constexpr):
    """The buffer after this one, and the parity with which it is waited for."""
    end = buffer == DEPTH - 1
    return gl.where(end, 0, buffer + 1), gl.where(end, phase ^ 1, phase)


@gluon.jit
def _before(buffer, DEPTH: gl.constexpr):
    return gl.where(buffer == 0, DEPTH - 1, buffer - 1)


@gluon.jit
def _straight(tile, BLOCK: gl.constexpr, BLOCK_K: gl.constexpr):
    """The memory of BLOCK_K rows and BLOCK columns as that of BLOCK rows and BLOCK_K columns."""
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK, BLOCK_K], tile.dtype)
    if _PUBLIC:
        tile = tile.reinterpret(tile.dtype, [BLOCK, BLOCK_K], layout)
    else:
        tile = tile._reinterpret(tile.dtype, [BLOCK, BLOCK_K], layout)
    return tile


@gluon.jit
def _fetch_planes(
    straight, across, slot, first, start, ready, tiles, to,
    SIDE: gl.constexpr, BLOCK: gl.constexpr, BLOCK_K: gl.constexpr, PLANES: gl.constexpr,
):  # fmt: skip
    """Begins to fetch BLOCK rows and BLOCK_K columns of a slot; left of the diagonal, what mirrors them."""
    for plane in gl.static_range(PLANES):
        top, tile = (slot * PLANES + plane) * SIDE, tiles.index(to + plane)
        if start < first:
            _copy(across, [top + start, first], ready, tile)
        else:
            _copy(straight, [top + first, start], ready, _straight(tile, BLOCK, BLOCK_K))


@gluon.jit
def fetch(
    straight, across, slots, n_stages, counters, tiles, ready, empty, own, rank, size, begin, end, stride,
    DERIVATIVE: gl.constexpr, SIDE: gl.constexpr, BLOCK: gl.constexpr, BLOCK_K: gl.constexpr, PLANES: gl.constexpr,
    N_TILES: gl.constexpr, N_SLOTS: gl.constexpr, CHAINS: gl.constexpr, DEPTH: gl.constexpr,
):  # fmt: skip
    """What the fetching warp does: fills the buffers with what the others need, in their order."""
    FACTORS: gl.constexpr = 4 if DERIVATIVE else 2
    arrivals, buffer, phase = 0, 0, 1
    for first_image in range(begin, end, stride * CHAINS):
        wait = 1
        for index_of_stage in range(0, n_stages):
            row = slots + 9 * index_of_stage
            left, left_diagonal = gl.load(row), gl.load(row + 1)
            right, right_diagonal, next_wait = gl.load(row + 2), gl.load(row + 3), gl.load(row + 7)
            arrivals += size * wait
            for chain in range(0, CHAINS):
                if first_image + chain * stride < end:
                    if wait != 0:
                        wait_for(counters + own + chain * stride, arrivals)
                        _order_copies()
                    base = (own + chain * stride) * N_SLOTS
                    for tile in range(rank, N_TILES, size):
                        first_row, first_column, _ = tile_corner(tile, SIDE // BLOCK, BLOCK)
                        for start in range(0, SIDE, BLOCK_K):
                            block = start // BLOCK * BLOCK
                            left_here = base + gl.where(block == first_row, left_diagonal, left)
                            right_here = base + gl.where(block == first_column, right_diagonal, right)
                            mbarrier.wait(empty.index(buffer), phase)
                            full, to = ready.index(buffer), buffer * (FACTORS * PLANES)
                            mbarrier.expect(full, FACTORS * PLANES * BLOCK * BLOCK_K * 2)
                            _fetch_planes(
                                straight, across, right_here, first_column, start, full, tiles, to,
                                SIDE, BLOCK, BLOCK_K, PLANES,
                            )  # fmt: skip
                            _fetch_planes(
                                straight, across, left_here, first_row, start, full, tiles, to + PLANES,
                                SIDE, BLOCK, BLOCK_K, PLANES,
                            )  # fmt: skip
                            if DERIVATIVE:
                                _fetch_planes(
                                    straight, across, base + right + D_SLOT, first_column, start, full, tiles,
                                    to + 2 * PLANES, SIDE, BLOCK, BLOCK_K, PLANES,
                                )  # fmt: skip
                                _fetch_planes(
                                    straight, across, base + left + D_SLOT, first_row, start, full, tiles,
                                    to + 3 * PLANES, SIDE, BLOCK, BLOCK_K, PLANES,
                                )  # fmt: skip
                            buffer, phase = _next(buffer, phase, DEPTH)
            wait = next_wait
        arrivals += size


@gluon.jit
def _left(tile, ACROSS: gl.constexpr, BLOCK: gl.constexpr, BLOCK_K: gl.constexpr):
    return tile.permute((1, 0)) if ACROSS else _straight(tile, BLOCK, BLOCK_K)


@gluon.jit
def _right(tile, ACROSS: gl.constexpr, BLOCK: gl.constexpr, BLOCK_K: gl.constexpr):
    return tile if ACROSS else _straight(tile, BLOCK, BLOCK_K).permute((1, 0))


@gluon.jit
def _factors(tiles, first, LEFT: gl.constexpr, RIGHT: gl.constexpr, BLOCK: gl.constexpr, BLOCK_K: gl.constexpr,
             PLANES: gl.constexpr):  # fmt: skip
    """Both factors of a product, each with what is missing in its first plane."""
    c = _right(tiles.index(first), RIGHT, BLOCK, BLOCK_K)
    a = _left(tiles.index(first + PLANES), LEFT, BLOCK, BLOCK_K)
    c_low, a_low = c, a
    if PLANES == 2:
        c_low = _right(tiles.index(first + 1), RIGHT, BLOCK, BLOCK_K)
        a_low = _left(tiles.index(first + 3), LEFT, BLOCK, BLOCK_K)
    return a, a_low, c, c_low


@gluon.jit
def _add_products(
    total, small, d_total, tiles, ready, empty, buffer, phase, begin, end,
    LEFT: gl.constexpr, RIGHT: gl.constexpr, DERIVATIVE: gl.constexpr,
    BLOCK: gl.constexpr, BLOCK_K: gl.constexpr, PLANES: gl.constexpr, DEPTH: gl.constexpr,
):  # fmt: skip
    """Adds the products over a range of the inner index, where factors to the LEFT or RIGHT lie across.

    Tensor cores cut off what is small against their sum, so that a long sum becomes too small. Those of split products
    are therefore short, one for each step, and are added in float32. Small products have a sum of their own for all
    steps; where registers are too few for it, those of derivatives, they come first in the sum of the step.
    """
    FACTORS: gl.constexpr = 4 if DERIVATIVE else 2
    for start in range(begin, end, BLOCK_K):
        mbarrier.wait(ready.index(buffer), phase)
        first = buffer * (FACTORS * PLANES)
        a, a_low, c, c_low = _factors(tiles, first, LEFT, RIGHT, BLOCK, BLOCK_K, PLANES)
        zero = gl.zeros((BLOCK, BLOCK), gl.float32, _SUM)
        if DERIVATIVE:
            da, da_low, dc, dc_low = _factors(tiles, first + 2 * PLANES, LEFT, RIGHT, BLOCK, BLOCK_K, PLANES)
        if PLANES == 1:
            total = warpgroup_mma(a, c, total, is_async=True)
            if DERIVATIVE:
                d_total = warpgroup_mma(da, c, d_total, is_async=True)
                d_total = warpgroup_mma(a, dc, d_total, is_async=True)
                total, d_total = warpgroup_mma_wait(3, (total, d_total))
            else:
                total = warpgroup_mma_wait(1, (total,))
            mbarrier.arrive(empty.index(_before(buffer, DEPTH)), pred=start > 0)
        elif not DERIVATIVE:
            part = warpgroup_mma(a, c, zero, use_acc=False, is_async=True)
            small = warpgroup_mma(a_low, c, small, is_async=True)
            small = warpgroup_mma(a, c_low, small, is_async=True)
            part, small = warpgroup_mma_wait(2, (part, small))
            mbarrier.arrive(empty.index(_before(buffer, DEPTH)), pred=start > 0)
            total += part
        else:
            d_part = warpgroup_mma(da_low, c, zero, use_acc=False, is_async=True)
            d_part = warpgroup_mma(da, c_low, d_part, is_async=True)
            d_part = warpgroup_mma(a_low, dc, d_part, is_async=True)
            d_part = warpgroup_mma(a, dc_low, d_part, is_async=True)
            d_part = warpgroup_mma(da, c, d_part, is_async=True)
            d_part = warpgroup_mma(a, dc, d_part, is_async=True)
            part = warpgroup_mma(a_low, c, zero, use_acc=False, is_async=True)
            part = warpgroup_mma(a, c_low, part, is_async=True)
            part = warpgroup_mma(a, c, part, is_async=True)
            d_part, part = warpgroup_mma_wait(3, (d_part, part))
            d_total += d_part
            part = warpgroup_mma_wait(0, (part,))
            mbarrier.arrive(empty.index(buffer))
            total += part
        buffer, phase = _next(buffer, phase, DEPTH)
    return total, small, d_total, buffer, phase


@gluon.jit
def products(
    tiles, ready, empty, buffer, phase, first_row, first_column, DERIVATIVE: gl.constexpr,
    SIDE: gl.constexpr, BLOCK: gl.constexpr, BLOCK_K: gl.constexpr, PLANES: gl.constexpr, DEPTH: gl.constexpr,
):  # fmt: skip
    """A tile of LC and, for derivatives, of dL·C + L·dC (else zero); and the next buffer and its parity."""
    total = gl.zeros((BLOCK, BLOCK), gl.float32, _SUM)
    small, d_total = total, total
    # Before the row of the tile both factors lie across, before its column the right one, from there on none.
    bounds = 0, first_row, first_column, SIDE
    for part in gl.static_range(3):
        total, small, d_total, buffer, phase = _add_products(
            total, small, d_total, tiles, ready, empty, buffer, phase, bounds[part], bounds[part + 1],
            part == 0, part < 2, DERIVATIVE, BLOCK, BLOCK_K, PLANES, DEPTH,
        )  # fmt: skip
    if PLANES == 1 and DERIVATIVE:
        total, d_total = warpgroup_mma_wait(0, (total, d_total))
    elif PLANES == 1:
        total = warpgroup_mma_wait(0, (total,))
    elif not DERIVATIVE:
        small = warpgroup_mma_wait(0, (small,))
        total += small
    if PLANES == 1 or not DERIVATIVE:
        mbarrier.arrive(empty.index(_before(buffer, DEPTH)))
    return total, d_total, buffer, phase
