"""The iteration of ``newton_schulz.py`` for Hopper GPUs, in Triton's lower-level language Gluon.

The same program on the same slots, with four differences. One warp does nothing but fetch factors, and waits for the
group; the others wait for data only. Most products need not end before the next one begins. A slot holds
the tiles on and above the diagonal only. And a group may carry several matrices in turn, so that it works on one while
the blocks of the group wait for each other with another.
"""

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from .borders import leave, numbers, power_of_trace, prepare
from .hopper_products import WARPS, arrive, fetch, products, wait_for
from .newton_schulz import DIRECTION_NORM
from .stage import finish, load_own
from .tiles import diagonal_places, tile_corner, trace_of

_FETCHER_REGISTERS: gl.constexpr = gl.constexpr(24)
# Tiles are loaded and stored with eight threads a row, and 16 bytes of a plane for each.
_ROWS: gl.constexpr = gl.constexpr(gl.BlockedLayout([1, 8], [4, 8], [WARPS, 1], [1, 0]))
_LINE: gl.constexpr = gl.constexpr(gl.BlockedLayout([1], [32], [WARPS], [0]))


@triton.jit
def share(block, n_blocks, batch, left, GROUP: tl.constexpr, CHAINS: tl.constexpr):
    """What a block has to do: the place of its group and its own rank there, how many blocks share a matrix; the first
    and the end of the matrices, and how far apart the group's chains are, in matrices and in places.
    """
    group, rank, n_groups = block // GROUP, block % GROUP, n_blocks // GROUP
    too_few = group == n_groups
    size, stride = tl.where(too_few, n_blocks % GROUP, GROUP), tl.where(too_few, 1, n_groups)
    # The first blocks of a launch share multiprocessors while others are free: a last, small round goes past them.
    begin = tl.where(too_few, batch, (group + n_groups - 2) % n_groups)
    own = tl.where(too_few, tl.minimum(batch, n_groups * CHAINS), begin)
    return own, rank, size, begin, tl.where(too_few, batch + left, batch), stride


@gluon.jit
def _lines(ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """The lines and the columns of a tile."""
    return gl.arange(0, ROWS, gl.SliceLayout(1, _ROWS)), gl.arange(0, COLUMNS, gl.SliceLayout(0, _ROWS))


@gluon.jit
def _trace(source, D, shift, SIDE: gl.constexpr, BLOCK: gl.constexpr):
    index = gl.arange(0, triton.next_power_of_2(SIDE), _LINE)
    return trace_of(gl.load(source + diagonal_places(index, SIDE // BLOCK, BLOCK), mask=index < D, other=0.0), D, shift)


@gluon.jit
def _multiply(
    source, cotangent, norms, out, next_norms, sigma, alive_parts, rates, lams, d_sigma, moments, beta,
    workspace, partials, counters, results, slots, weights, n_stages, D, shift, scale, derivative_scale,
    tiles, ready, empty, own, rank, size, begin, end, stride,
    POWER: gl.constexpr, DERIVATIVE: gl.constexpr, STEP: gl.constexpr, MOMENTS: gl.constexpr,
    SIDE: gl.constexpr, BLOCK: gl.constexpr, BLOCK_K: gl.constexpr, STRIP: gl.constexpr, PLANES: gl.constexpr,
    N_TILES: gl.constexpr, N_SLOTS: gl.constexpr, CHAINS: gl.constexpr, DEPTH: gl.constexpr,
):  # fmt: skip
    """What the other warps do: all but fetching factors. A chain of the group has its own slots and its own counter."""
    N_BLOCKS: gl.constexpr = SIDE // BLOCK
    TILE: gl.constexpr = BLOCK * BLOCK
    SPACE: gl.constexpr = N_SLOTS * PLANES * SIDE * SIDE
    arrivals, buffer, phase = 0, 0, 0
    for first_image in range(begin, end, stride * CHAINS):
        for chain in range(0, CHAINS):
            image, place = first_image + chain * stride, own + chain * stride
            if image < end:
                first, counter = image.to(gl.int64) * (N_TILES * TILE), counters + place
                trace, alive = _trace(source + first, D, shift, SIDE, BLOCK)
                rate, lam, norm, given = numbers(rates, lams, norms, image, beta, STEP, DERIVATIVE)
                to_norm = DIRECTION_NORM / norm
                if not DERIVATIVE:
                    wait_for(counter, arrivals)  # until nobody reads the slots of the matrix before
                for tile in range(rank, N_TILES, size):
                    first_row, first_column, _ = tile_corner(tile, N_BLOCKS, BLOCK)
                    at = first + tile * TILE
                    lines, columns = _lines(BLOCK, BLOCK)
                    prepare(
                        workspace + place.to(gl.int64) * SPACE, source + at, cotangent + at,
                        alive_parts + at, rate, trace, alive, scale, to_norm * scale * derivative_scale,
                        first_row, first_column, lines, columns, False, D, shift, DERIVATIVE, STEP, SIDE, BLOCK, PLANES,
                    )  # fmt: skip
                arrive(counter)
        arrivals += size

        for index_of_stage in range(0, n_stages):
            row, weight = slots + 6 * index_of_stage, weights + 4 * index_of_stage
            left, into, term, next_wait = gl.load(row), gl.load(row + 2), gl.load(row + 3), gl.load(row + 4)
            alpha, of_left = gl.load(weight), gl.load(weight + 1)
            of_term, gamma = gl.load(weight + 2), gl.load(weight + 3)
            last = index_of_stage == n_stages - 1
            for chain in range(0, CHAINS):
                if first_image + chain * stride < end:
                    place = own + chain * stride
                    for tile in range(rank, N_TILES, size):
                        first_row, first_column, _ = tile_corner(tile, N_BLOCKS, BLOCK)
                        slots_here = workspace + place.to(gl.int64) * SPACE
                        lines, columns = _lines(BLOCK, BLOCK)
                        # It comes while the products run.
                        left_tile = load_own(
                            slots_here, left, first_row, first_column, lines, columns, DERIVATIVE, SIDE, PLANES
                        )
                        total, d_total, buffer, phase = products(
                            tiles, ready, empty, buffer, phase, first_row, first_column,
                            DERIVATIVE, SIDE, BLOCK, BLOCK_K, PLANES, DEPTH,
                        )  # fmt: skip
                        total, d_total = gl.convert_layout(total, _ROWS), gl.convert_layout(d_total, _ROWS)
                        finish(
                            total, d_total, left_tile, slots_here,
                            results + (place * N_TILES + tile) * (2 * TILE), into, term, last,
                            alpha, of_left, of_term, gamma, first_row, first_column, lines, columns, False,
                            DERIVATIVE, SIDE, BLOCK, PLANES,
                        )  # fmt: skip
                    # After the last stage of a derivative, blocks arrive with their sums instead.
                    if next_wait != 0 and not (last and DERIVATIVE):
                        arrive(counters + place)
            arrivals += size * next_wait

        tl.debug_barrier()
        for chain in range(0, CHAINS):
            image, place = first_image + chain * stride, own + chain * stride
            if image < end:
                first = image.to(gl.int64) * (N_TILES * TILE)
                trace, alive = _trace(source + first, D, shift, SIDE, BLOCK)
                rate, lam, norm, given = numbers(rates, lams, norms, image, beta, STEP, DERIVATIVE)
                for tile in range(rank, N_TILES, size):
                    first_row, first_column, on_diagonal = tile_corner(tile, N_BLOCKS, BLOCK)
                    at = first + tile * TILE
                    lines, columns = _lines(STRIP, BLOCK)
                    along, square, d_rate, d_lam = leave(
                        results + (place * N_TILES + tile) * (2 * TILE), out + at, source + at, cotangent + at,
                        sigma + at, alive_parts + at, d_sigma + at, rate, lam, trace, alive,
                        power_of_trace(trace, POWER), norm / (DIRECTION_NORM * derivative_scale), given,
                        first_row, first_column, gl.zeros((STRIP, BLOCK), gl.float32, _ROWS), lines, columns,
                        D, shift, POWER, DERIVATIVE, STEP, MOMENTS, BLOCK, STRIP,
                    )  # fmt: skip
                    if DERIVATIVE:
                        twice, partial = gl.where(on_diagonal, 1.0, 2.0), partials + place * (2 * N_TILES) + tile
                        gl.store(partial, twice * along)
                        gl.store(partial + N_TILES, twice * square)
                        if MOMENTS:
                            spot = moments + (image.to(gl.int64) * N_TILES + tile) * 2
                            gl.store(spot, twice * d_rate)
                            gl.store(spot + 1, twice * d_lam)
                if DERIVATIVE:
                    arrive(counters + place)

        if DERIVATIVE:
            for chain in range(0, CHAINS):
                image, place = first_image + chain * stride, own + chain * stride
                if image < end:
                    first = image.to(gl.int64) * (N_TILES * TILE)
                    trace, alive = _trace(source + first, D, shift, SIDE, BLOCK)
                    wait_for(counters + place, arrivals)
                    every = gl.arange(0, triton.next_power_of_2(N_TILES), _LINE)
                    partial = partials + place * (2 * N_TILES) + every
                    along = gl.sum(gl.load(partial, mask=every < N_TILES, other=0.0, cache_modifier=".cg"))
                    square = gl.sum(gl.load(partial + N_TILES, mask=every < N_TILES, other=0.0, cache_modifier=".cg"))
                    change = alive * along * power_of_trace(trace, POWER) / trace
                    rate, lam, norm, given = numbers(rates, lams, norms, image, beta, STEP, DERIVATIVE)
                    if rank == 0:
                        gl.store(next_norms + image, given * gl.sqrt(square) + gl.abs(change) * gl.sqrt(D * 1.0))
                    for tile in range(rank, N_TILES, size):
                        first_row, _, on_diagonal = tile_corner(tile, N_BLOCKS, BLOCK)
                        if on_diagonal:
                            line = gl.arange(0, BLOCK, _LINE)
                            spots = out + first + tile * TILE + line * (BLOCK + 1)
                            gl.store(spots, gl.load(spots) + change, mask=line < D - first_row)


@gluon.jit(
    do_not_specialize=["n_stages", "batch", "left", "D"],
    do_not_specialize_on_alignment=["norms", "next_norms", "rates", "lams", "moments", "counters"],
)
def iterate(
    source, cotangent, norms, out, next_norms, sigma, alive_parts, rates, lams, d_sigma, moments, beta,
    workspace, straight, across, left,  # slots of each chain; descriptors of all of them as one matrix
    partials, counters, results, slots, weights, n_stages, batch, D, shift, scale, derivative_scale,
    POWER: gl.constexpr, DERIVATIVE: gl.constexpr, STEP: gl.constexpr, MOMENTS: gl.constexpr,
    SIDE: gl.constexpr, BLOCK: gl.constexpr, BLOCK_K: gl.constexpr, STRIP: gl.constexpr, PLANES: gl.constexpr,
    N_TILES: gl.constexpr, N_SLOTS: gl.constexpr, GROUP: gl.constexpr, CHAINS: gl.constexpr, DEPTH: gl.constexpr,
):  # fmt: skip
    """As :func:`newton_schulz.iterate`; a group carries several matrices in turn, each of these chains in its place.

    ``left`` matrices more than ``batch`` are carried by the blocks that are too few for another group, slowly.
    """
    own, rank, size, begin, end, stride = share(gl.program_id(0), gl.num_programs(0), batch, left, GROUP, CHAINS)
    N_BUFFERS: gl.constexpr = DEPTH * (4 if DERIVATIVE else 2) * PLANES
    # Of both ways to see a tile, the one that is aligned more.
    tiles = gl.allocate_shared_memory(across.dtype, [N_BUFFERS, BLOCK_K, BLOCK], across.layout)
    ready = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(DEPTH):
        mbarrier.init(ready.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    gl.warp_specialize(
        [
            (_multiply, (
                source, cotangent, norms, out, next_norms, sigma, alive_parts, rates, lams, d_sigma, moments, beta,
                workspace, partials, counters, results, slots, weights, n_stages, D, shift, scale,
                derivative_scale, tiles, ready, empty, own, rank, size, begin, end, stride,
                POWER, DERIVATIVE, STEP, MOMENTS,
                SIDE, BLOCK, BLOCK_K, STRIP, PLANES, N_TILES, N_SLOTS, CHAINS, DEPTH,
            )),
            (fetch, (
                straight, across, slots, n_stages, counters, tiles, ready, empty, own, rank, size, begin, end, stride,
                DERIVATIVE, SIDE, BLOCK, BLOCK_K, PLANES, N_TILES, N_SLOTS, CHAINS, DEPTH,
            )),
        ],
        [1], [_FETCHER_REGISTERS],
    )  # fmt: skip


def describer(side: int, block: int, block_k: int) -> Callable[[Tensor, int], list[Any]]:
    """Describes a workspace to the GPU's copy engine, as one matrix: its tiles as they lie, and across."""
    sides = [[block, block_k], [block_k, block]]
    layouts = [(tile, gl.NVMMASharedLayout.get_default_for(tile, gl.float16)) for tile in sides]

    def describe(workspace: Tensor, left: int) -> list[Any]:
        matrix = workspace.view(-1, side)
        return [*(TensorDescriptor.from_tensor(matrix, tile, layout) for tile, layout in layouts), left]

    return describe
