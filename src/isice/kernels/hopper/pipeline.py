"""Shared-memory pipeline of the Hopper kernel: a producer warp fills a ring of buffers by TMA.

The producer fills the ring in the order in which the consumer warps empty it. Tiles
below the diagonal are not stored: they are copied from their mirror images, and the
MMA reads them transposed.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from ..gemm import DERIVATIVE_SLOT
from ..layout import tile_corner

# Names that changed after Triton 3.6.
_PUBLIC: gl.constexpr = gl.constexpr(hasattr(gl.shared_memory_descriptor, "reinterpret"))
_copy = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared


class Share(NamedTuple):
    """The part of the batch that belongs to a block."""

    index: Any  # workspace of the group's first matrix in flight
    rank: Any  # of the block in its group
    size: Any  # blocks in the group
    begin: Any  # first matrix
    end: Any  # end of the matrices
    stride: Any  # between the matrices of a group, and between their workspaces


class Ring(NamedTuple):
    """Buffers of k-slices in shared memory, and two mbarriers for each buffer."""

    tiles: Any  # (DEPTH · factors · planes, BLOCK_K, BLOCK)
    full: Any
    empty: Any


@triton.jit
def share(block, n_blocks, batch, remainder, GROUP: tl.constexpr, INTERLEAVE: tl.constexpr):
    """Return the matrices of a block; spare blocks take the ``remainder`` after ``batch``."""
    group, rank, n_groups = block // GROUP, block % GROUP, n_blocks // GROUP
    too_few = group == n_groups
    size, stride = tl.where(too_few, n_blocks % GROUP, GROUP), tl.where(too_few, 1, n_groups)
    # The first blocks of a launch share multiprocessors while others are free; a partial
    # last round avoids them.
    begin = tl.where(too_few, batch, (group + n_groups - 2) % n_groups)
    index = tl.where(too_few, tl.minimum(batch, n_groups * INTERLEAVE), begin)
    return Share(index, rank, size, begin, tl.where(too_few, batch + remainder, batch), stride)


@gluon.jit
def _fence_async_proxy():
    """Order generic stores before TMA reads of the same memory; needed on both sides of a wait."""
    gl.inline_asm_elementwise(
        "fence.proxy.async.global; mov.u32 $0, 0;", "=r", [], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def arrive(counter):
    """Signal that this block has arrived; its stores are visible to blocks that wait."""
    _fence_async_proxy()
    tl.debug_barrier()
    gl.atomic_add(counter, 1, sem="release")


@gluon.jit
def wait_for(counter, target):
    """Wait for ``target`` arrivals."""
    seen = gl.atomic_add(counter, 0, sem="acquire")
    while seen < target:
        seen = gl.atomic_add(counter, 0, sem="acquire")
    tl.debug_barrier()


@gluon.jit
def next_buffer(buffer, phase, DEPTH: gl.constexpr):
    """Return the next buffer of the ring and the parity of its mbarriers."""
    end = buffer == DEPTH - 1
    return gl.where(end, 0, buffer + 1), gl.where(end, phase ^ 1, phase)


@gluon.jit
def previous_buffer(buffer, DEPTH: gl.constexpr):
    """Return the previous buffer."""
    return gl.where(buffer == 0, DEPTH - 1, buffer - 1)


@gluon.jit
def untransposed(tile, CONFIG: gl.constexpr):
    """Reinterpret memory of BLOCK_K × BLOCK entries as BLOCK × BLOCK_K."""
    shape: gl.constexpr = [CONFIG.BLOCK, CONFIG.BLOCK_K]
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for(shape, tile.dtype)
    return tile.reinterpret(tile.dtype, shape, layout) if _PUBLIC else tile._reinterpret(tile.dtype, shape, layout)


@gluon.jit
def _copy_planes(direct, transposed, slot, first, start, full, tiles, to, CONFIG: gl.constexpr):
    """Start the copy of BLOCK × BLOCK_K of a slot; left of the diagonal, of the mirror image."""
    PLANES: gl.constexpr = CONFIG.PLANES
    for plane in gl.static_range(PLANES):
        top, tile = (slot * PLANES + plane) * CONFIG.SIDE, tiles.index(to + plane)
        if start < first:
            _copy(transposed, [top + start, first], full, tile)
        else:
            _copy(direct, [top + first, start], full, untransposed(tile, CONFIG))


@gluon.jit
def _copy_slice(direct, transposed, left, right, corner, start, ring, buffer, CONFIG: gl.constexpr):
    """Start the copies of one k-slice of both factors and, if needed, their derivatives."""
    FACTORS: gl.constexpr = 4 if CONFIG.DERIVATIVE else 2
    PLANES: gl.constexpr = CONFIG.PLANES
    full, to = ring.full.index(buffer), buffer * (FACTORS * PLANES)
    mbarrier.expect(full, FACTORS * PLANES * CONFIG.BLOCK * CONFIG.BLOCK_K * 2)
    _copy_planes(direct, transposed, right, corner.column, start, full, ring.tiles, to, CONFIG)
    _copy_planes(direct, transposed, left, corner.row, start, full, ring.tiles, to + PLANES, CONFIG)
    if CONFIG.DERIVATIVE:
        right, left = right + DERIVATIVE_SLOT, left + DERIVATIVE_SLOT
        _copy_planes(direct, transposed, right, corner.column, start, full, ring.tiles, to + 2 * PLANES, CONFIG)
        _copy_planes(direct, transposed, left, corner.row, start, full, ring.tiles, to + 3 * PLANES, CONFIG)


@gluon.jit
def producer(direct, transposed, stages, n_stages, counters, ring, part, CONFIG: gl.constexpr):
    """Fill the ring with the factors of every stage, tile and k-slice of the block's ``part``."""
    arrivals, buffer, phase = 0, 0, 1
    for first_image in range(part.begin, part.end, part.stride * CONFIG.INTERLEAVE):
        wait = 1
        for index in range(0, n_stages):
            row = stages + 6 * index
            left, right, next_waits = gl.load(row), gl.load(row + 1), gl.load(row + 4)
            arrivals += part.size * wait
            for i in range(0, CONFIG.INTERLEAVE):
                if first_image + i * part.stride < part.end:
                    if wait != 0:
                        wait_for(counters + part.index + i * part.stride, arrivals)
                        _fence_async_proxy()
                    base = (part.index + i * part.stride) * CONFIG.N_SLOTS
                    for tile in range(part.rank, CONFIG.N_TILES, part.size):
                        corner = tile_corner(tile, CONFIG.SIDE // CONFIG.BLOCK, CONFIG.BLOCK)
                        for start in range(0, CONFIG.SIDE, CONFIG.BLOCK_K):
                            mbarrier.wait(ring.empty.index(buffer), phase)
                            _copy_slice(
                                direct, transposed, base + left, base + right, corner, start, ring, buffer, CONFIG
                            )
                            buffer, phase = next_buffer(buffer, phase, CONFIG.DEPTH)
            wait = next_waits
        arrivals += part.size
