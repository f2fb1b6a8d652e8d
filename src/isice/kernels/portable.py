"""The Newton–Schulz kernel for every GPU.

A group of blocks shares a matrix for the whole iteration. Each block owns the same tiles in
every stage, and the group synchronises between stages through a counter in HBM. All blocks
are resident (a cooperative launch), so waiting cannot deadlock, and the matrices in flight
are few enough for the L2 cache.
"""

import triton
import triton.language as tl

from .epilogue import DIRECTION_NORM, Lanes, epilogue, load_scalars, prologue, tile_pointers, trace_factor, trace_of
from .gemm import gemm, load_stage
from .layout import diagonal_offsets, tile_corner


@triton.jit
def _arrive(counter, GROUP: tl.constexpr):
    """Signal that this block has arrived; its stores are visible to blocks that wait."""
    tl.debug_barrier()
    if GROUP > 1:
        tl.atomic_add(counter, 1, sem="release")


@triton.jit
def _wait(counter, target, GROUP: tl.constexpr):
    """Wait for ``target`` arrivals."""
    if GROUP > 1:
        seen = tl.atomic_add(counter, 0, sem="acquire")
        while seen < target:
            seen = tl.atomic_add(counter, 0, sem="acquire")
        tl.debug_barrier()


@triton.jit
def _lanes(ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    return Lanes(tl.arange(0, ROWS), tl.arange(0, COLUMNS))


@triton.jit
def _load_trace(source, zero, problem, CONFIG: tl.constexpr):
    index = tl.arange(0, triton.next_power_of_2(CONFIG.SIDE)) + zero
    at = source + diagonal_offsets(index, CONFIG.SIDE // CONFIG.BLOCK, CONFIG.BLOCK)
    return trace_of(tl.load(at, mask=index < problem.D, other=0.0), problem.D, problem.shift)


@triton.jit
def iterate(operands, step, workspace, schedule, problem, CONFIG: tl.constexpr):
    """Compute the matrices ``group``, ``group + n_groups``, … of the batch.

    The arguments are ``newton_schulz.Operands``, ``Step``, ``Workspace``, ``schedule.Schedule``,
    ``newton_schulz.Problem`` and ``Config``.
    """
    GROUP: tl.constexpr = CONFIG.GROUP
    N_TILES: tl.constexpr = CONFIG.N_TILES
    N_BLOCKS: tl.constexpr = CONFIG.SIDE // CONFIG.BLOCK
    BLOCK: tl.constexpr = CONFIG.BLOCK
    STRIP: tl.constexpr = CONFIG.STRIP
    TILE: tl.constexpr = CONFIG.BLOCK * CONFIG.BLOCK
    group, rank = tl.program_id(0) // GROUP, tl.program_id(0) % GROUP
    n_groups = tl.num_programs(0) // GROUP
    slots = workspace.slots + group.to(tl.int64) * (CONFIG.N_SLOTS * CONFIG.PLANES * CONFIG.SIDE * CONFIG.SIDE)
    partials = workspace.partials + group * (2 * N_TILES)
    counter = workspace.counters + group
    results = workspace.results + group * (2 * N_TILES * TILE)
    arrivals = 0
    # The first blocks of a launch share multiprocessors while others are free; a partial
    # last round avoids them.
    for image in range((group + n_groups - 2) % n_groups, problem.batch, n_groups):
        # The compiler does not know that this is zero, so addresses that depend on it are
        # computed where they are used. Hoisted out of the loop they would occupy registers
        # that the products need.
        zero = tl.load(schedule.stages + 5)
        first = tl.full([], image, tl.int64) * (N_TILES * TILE)
        scalars = load_scalars(step, operands.norms, image, CONFIG)
        d_scale = DIRECTION_NORM / scalars.direction_norm * schedule.scale * schedule.derivative_scale
        trace = _load_trace(operands.source + first, zero, problem, CONFIG)
        if not CONFIG.DERIVATIVE:
            _wait(counter, arrivals, GROUP)  # until no block reads the slots of the previous matrix
        for tile in range(rank + zero, N_TILES, GROUP):
            corner = tile_corner(tile, N_BLOCKS, BLOCK)
            prologue(
                slots, tile_pointers(operands, step, first + tile * TILE), scalars.rate, trace, schedule.scale,
                d_scale, corner, _lanes(BLOCK, BLOCK), corner.row != corner.column, problem, CONFIG,
            )  # fmt: skip

        wait = 1
        for index in range(0, schedule.n_stages):
            # Loaded before the wait, to hide its latency; the previous stage says whether to wait.
            stage = load_stage(schedule, index)
            if wait != 0:
                arrivals += GROUP
                _arrive(counter, GROUP)
                _wait(counter, arrivals, GROUP)
            wait = stage.next_waits
            zero = stage.zero
            for tile in range(rank + zero, N_TILES, GROUP):
                corner, result = tile_corner(tile, N_BLOCKS, BLOCK), results + 2 * tile * TILE
                gemm(slots, result, stage, problem.side, corner, _lanes(BLOCK, BLOCK), CONFIG)

        scalars = load_scalars(step, operands.norms, image, CONFIG)
        if not CONFIG.DERIVATIVE:
            arrivals += GROUP
            _arrive(counter, GROUP)
        else:
            tl.debug_barrier()
        for tile in range(rank + zero, N_TILES, GROUP):
            corner = tile_corner(tile, N_BLOCKS, BLOCK)
            along, square, d_rate, d_lam = epilogue(
                results + 2 * tile * TILE, tile_pointers(operands, step, first + tile * TILE), scalars, trace,
                schedule.derivative_scale, corner, _lanes(STRIP, BLOCK), tl.zeros((STRIP, BLOCK), tl.float32),
                problem, CONFIG,
            )  # fmt: skip
            if CONFIG.DERIVATIVE:
                twice = tl.where(corner.on_diagonal, 1.0, 2.0)
                tl.store(partials + tile, twice * along)
                tl.store(partials + N_TILES + tile, twice * square)
                if CONFIG.MOMENTS:
                    moment = step.moments + (tl.full([], image, tl.int64) * N_TILES + tile) * 2
                    tl.store(moment, twice * d_rate)
                    tl.store(moment + 1, twice * d_lam)

        if CONFIG.DERIVATIVE:
            arrivals += GROUP
            _arrive(counter, GROUP)
            _wait(counter, arrivals, GROUP)
            every = tl.arange(0, triton.next_power_of_2(N_TILES))
            along = tl.sum(tl.load(partials + every, mask=every < N_TILES, other=0.0, cache_modifier=".cg"))
            square = tl.load(partials + N_TILES + every, mask=every < N_TILES, other=0.0, cache_modifier=".cg")
            change = trace.has_variance * along * trace_factor(trace, CONFIG.POWER) / trace.value
            if rank == 0:
                norm = scalars.cotangent_norm * tl.sqrt(tl.sum(square)) + tl.abs(change) * tl.sqrt(problem.D * 1.0)
                tl.store(operands.out_norms + image, norm)
            for tile in range(rank + zero, N_TILES, GROUP):
                corner = tile_corner(tile, N_BLOCKS, BLOCK)
                if corner.on_diagonal:
                    line = tl.arange(0, BLOCK)
                    diagonal = operands.out + first + tile * TILE + line * (BLOCK + 1)
                    tl.store(diagonal, tl.load(diagonal) + change, mask=line < problem.D - corner.row)
