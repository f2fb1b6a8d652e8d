"""Products of tiles for the kernel for Hopper GPUs: one warp fetches the factors, four others multiply them.

The fetching warp fills a ring of buffers, in the order in which the others empty it; a buffer is given back once its
products have ended, for which they wait when those of the next one have begun. Tiles below the diagonal are fetched
from their mirror images, and multiplied as those lie.
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
            row = slots + 6 * index_of_stage
            left, right, next_wait = gl.load(row), gl.load(row + 1), gl.load(row + 4)
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
                            mbarrier.wait(empty.index(buffer), phase)
                            full, to = ready.index(buffer), buffer * (FACTORS * PLANES)
                            mbarrier.expect(full, FACTORS * PLANES * BLOCK * BLOCK_K * 2)
                            _fetch_planes(
                                straight, across, base + right, first_column, start, full, tiles, to,
                                SIDE, BLOCK, BLOCK_K, PLANES,
                            )  # fmt: skip
                            _fetch_planes(
                                straight, across, base + left, first_row, start, full, tiles, to + PLANES,
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
def _in_flight(total, d_total, N: gl.constexpr, DERIVATIVE: gl.constexpr):
    """The sums once at most N products are in flight; one that nothing is added to has no part in it."""
    if DERIVATIVE:
        total, d_total = warpgroup_mma_wait(N, (total, d_total))
    else:
        total = warpgroup_mma_wait(N, (total,))
    return total, d_total


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
def _multiply(total, d_total, a, da, c, dc, DERIVATIVE: gl.constexpr):
    """Begins to add AC and, for derivatives, dA·C + A·dC."""
    total = warpgroup_mma(a, c, total, is_async=True)
    if DERIVATIVE:
        d_total = warpgroup_mma(da, c, d_total, is_async=True)
        d_total = warpgroup_mma(a, dc, d_total, is_async=True)
    return total, d_total


@gluon.jit
def _add_products(
    total, d_total, tiles, ready, empty, buffer, phase, begin, end,
    LEFT: gl.constexpr, RIGHT: gl.constexpr, DERIVATIVE: gl.constexpr,
    BLOCK: gl.constexpr, BLOCK_K: gl.constexpr, PLANES: gl.constexpr, DEPTH: gl.constexpr,
):  # fmt: skip
    """Adds the products over a range of the inner index, where factors to the LEFT or RIGHT lie across."""
    FACTORS: gl.constexpr = 4 if DERIVATIVE else 2
    PRODUCTS: gl.constexpr = (3 if DERIVATIVE else 1) * (3 if PLANES == 2 else 1)
    for start in range(begin, end, BLOCK_K):
        mbarrier.wait(ready.index(buffer), phase)
        first = buffer * (FACTORS * PLANES)
        a, a_low, c, c_low = _factors(tiles, first, LEFT, RIGHT, BLOCK, BLOCK_K, PLANES)
        da, da_low, dc, dc_low = a, a_low, c, c_low
        if DERIVATIVE:
            da, da_low, dc, dc_low = _factors(tiles, first + 2 * PLANES, LEFT, RIGHT, BLOCK, BLOCK_K, PLANES)
        if PLANES == 2:
            total, d_total = _multiply(total, d_total, a_low, da_low, c, dc, DERIVATIVE)
            total, d_total = _multiply(total, d_total, a, da, c_low, dc_low, DERIVATIVE)
        total, d_total = _multiply(total, d_total, a, da, c, dc, DERIVATIVE)
        total, d_total = _in_flight(total, d_total, PRODUCTS, DERIVATIVE)
        mbarrier.arrive(empty.index(_before(buffer, DEPTH)), pred=start > 0)
        buffer, phase = _next(buffer, phase, DEPTH)
    return total, d_total, buffer, phase


@gluon.jit
def products(
    tiles, ready, empty, buffer, phase, first_row, first_column, DERIVATIVE: gl.constexpr,
    SIDE: gl.constexpr, BLOCK: gl.constexpr, BLOCK_K: gl.constexpr, PLANES: gl.constexpr, DEPTH: gl.constexpr,
):  # fmt: skip
    """A tile of LC and, for derivatives, of dL·C + L·dC (else zero); and the next buffer and its parity."""
    total = gl.zeros((BLOCK, BLOCK), gl.float32, _SUM)
    # The compiler may set the zeros after the first product has begun, and would then let each one end before the next.
    total, d_total = _in_flight(total, total, 0, DERIVATIVE)
    # Before the row of the tile both factors lie across, before its column the right one, from there on none.
    bounds = 0, first_row, first_column, SIDE
    for part in gl.static_range(3):
        total, d_total, buffer, phase = _add_products(
            total, d_total, tiles, ready, empty, buffer, phase, bounds[part], bounds[part + 1],
            part == 0, part < 2, DERIVATIVE, BLOCK, BLOCK_K, PLANES, DEPTH,
        )  # fmt: skip
    total, d_total = _in_flight(total, d_total, 0, DERIVATIVE)
    mbarrier.arrive(empty.index(_before(buffer, DEPTH)))
    return total, d_total, buffer, phase
