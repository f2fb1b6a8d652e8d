"""The Newton–Schulz iteration in one launch: the twin of ``ops/newton_schulz.py`` and of the loop of ``ops/isice.py``.

A group of blocks carries one matrix through the whole iteration, each block the same tiles in every stage, and waits
for the others between stages. All blocks are on the GPU at once (a cooperative launch), so waiting cannot deadlock,
and the matrices in work are few enough to stay in the second cache level. The same launch adds α and divides by the
trace before the iteration; after it, it scales back, and takes a step of iSICE or that step's backward pass. Matrices
come and go tiled, so that this costs few instructions: a block is alone with its latencies.
"""

import triton
import triton.language as tl

from .borders import add_to_diagonal, leave, numbers, power_of_trace, prepare
from .stage import stage
from .tiles import diagonal_places, tile_corner, trace_of

# A direction enters the iteration with this norm: then its growth fits the range of float16, and so do small entries.
DIRECTION_NORM: tl.constexpr = tl.constexpr(8.0)


@triton.jit
def _arrive(counter, GROUP: tl.constexpr):
    """Says that this block has come here; what it stored before is visible to those who wait."""
    tl.debug_barrier()
    if GROUP > 1:
        tl.atomic_add(counter, 1, sem="release")


@triton.jit
def _wait(counter, target, GROUP: tl.constexpr):
    """Returns once the blocks of the group have arrived so many times."""
    if GROUP > 1:
        seen = tl.atomic_add(counter, 0, sem="acquire")
        while seen < target:
            seen = tl.atomic_add(counter, 0, sem="acquire")
        tl.debug_barrier()


@triton.jit(
    do_not_specialize=["n_stages", "batch", "D", "side"],
    do_not_specialize_on_alignment=["norms", "next_norms", "rates", "lams", "moments", "counters"],
)
def iterate(
    source, cotangent, norms, out, next_norms,  # tiled matrices, and bounds on the norms (B,) of cotangents
    sigma, alive_parts, rates, lams, d_sigma, moments, beta,  # a step of iSICE: tiled; values (B,); sums (B, tiles, 2)
    workspace, side,  # slots of each group, and the side of their matrices
    partials, counters, results,  # of each group: two sums for each tile, arrivals, tiles of the result
    slots, weights, n_stages,  # the program
    batch, D, shift, scale, derivative_scale,
    POWER: tl.constexpr, DERIVATIVE: tl.constexpr, STEP: tl.constexpr, MOMENTS: tl.constexpr,
    SIDE: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr, STRIP: tl.constexpr, PLANES: tl.constexpr,
    N_TILES: tl.constexpr, N_SLOTS: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Carries the matrices ``group``, ``group + n_groups``, … through the iteration."""
    group, rank = tl.program_id(0) // GROUP, tl.program_id(0) % GROUP
    n_groups = tl.num_programs(0) // GROUP
    workspace += group.to(tl.int64) * (N_SLOTS * PLANES * SIDE * SIDE)
    partials += group * (2 * N_TILES)
    counters += group
    results += group * (2 * N_TILES * BLOCK * BLOCK)
    arrivals = 0
    # The first blocks of a launch share multiprocessors while others are free: a last, small round goes past them.
    for image in range((group + n_groups - 2) % n_groups, batch, n_groups):
        # The compiler does not know that it is zero: what depends on it is computed where it is used, instead of once
        # for all matrices, in registers that the products need.
        zero = tl.load(slots + 5)
        first = tl.full([], image, tl.int64) * (N_TILES * BLOCK * BLOCK)
        rate, lam, norm, given = numbers(rates, lams, norms, image, beta, STEP, DERIVATIVE)
        to_norm = DIRECTION_NORM / norm
        index = tl.arange(0, triton.next_power_of_2(SIDE)) + zero
        diagonal_at = source + first + diagonal_places(index, SIDE // BLOCK, BLOCK)
        diagonal = tl.load(diagonal_at, mask=index < D, other=0.0)
        trace, alive = trace_of(diagonal, D, shift)
        if not DERIVATIVE:
            _wait(counters, arrivals, GROUP)  # until nobody reads the slots of the matrix before
        for tile in range(rank + zero, N_TILES, GROUP):
            first_row, first_column, _ = tile_corner(tile, SIDE // BLOCK, BLOCK)
            at = first + tile * (BLOCK * BLOCK)
            prepare(
                workspace, source + at, cotangent + at, alive_parts + at, rate, trace, alive, scale,
                to_norm * scale * derivative_scale, first_row, first_column, tl.arange(0, BLOCK), tl.arange(0, BLOCK),
                first_row != first_column, D, shift,
                DERIVATIVE, STEP, SIDE, BLOCK, PLANES,
            )  # fmt: skip

        wait = 1
        for index_of_stage in range(0, n_stages):
            # The row is read before the wait, so that it is there after it; whether to wait, in the row before.
            row, weight = slots + 6 * index_of_stage, weights + 4 * index_of_stage
            left, right, into = tl.load(row), tl.load(row + 1), tl.load(row + 2)
            term, next_wait, zero = tl.load(row + 3), tl.load(row + 4), tl.load(row + 5)
            alpha, of_left = tl.load(weight), tl.load(weight + 1)
            of_term, gamma = tl.load(weight + 2), tl.load(weight + 3)
            if wait != 0:
                arrivals += GROUP
                _arrive(counters, GROUP)
                _wait(counters, arrivals, GROUP)
            wait = next_wait
            for tile in range(rank + zero, N_TILES, GROUP):
                first_row, first_column, _ = tile_corner(tile, SIDE // BLOCK, BLOCK)
                stage(
                    workspace, side, results + 2 * tile * BLOCK * BLOCK, left, right, into, term,
                    index_of_stage == n_stages - 1, alpha, of_left, of_term, gamma, first_row, first_column,
                    DERIVATIVE, SIDE, BLOCK, BLOCK_K, PLANES,
                )  # fmt: skip

        back = power_of_trace(trace, POWER)
        rate, lam, norm, given = numbers(rates, lams, norms, image, beta, STEP, DERIVATIVE)
        if not DERIVATIVE:
            arrivals += GROUP
            _arrive(counters, GROUP)
        else:
            tl.debug_barrier()
        for tile in range(rank + zero, N_TILES, GROUP):
            first_row, first_column, on_diagonal = tile_corner(tile, SIDE // BLOCK, BLOCK)
            at = first + tile * (BLOCK * BLOCK)
            along, square, d_rate, d_lam = leave(
                results + 2 * tile * BLOCK * BLOCK, out + at, source + at, cotangent + at, sigma + at, alive_parts + at,
                d_sigma + at, rate, lam, trace, alive, back, norm / (DIRECTION_NORM * derivative_scale), given,
                first_row, first_column, tl.zeros((STRIP, BLOCK), tl.float32), tl.arange(0, STRIP),
                tl.arange(0, BLOCK), D, shift, POWER, DERIVATIVE, STEP, MOMENTS, BLOCK, STRIP,
            )  # fmt: skip
            if DERIVATIVE:
                twice = tl.where(on_diagonal, 1.0, 2.0)
                tl.store(partials + tile, twice * along)
                tl.store(partials + N_TILES + tile, twice * square)
                if MOMENTS:
                    spot = moments + (tl.full([], image, tl.int64) * N_TILES + tile) * 2
                    tl.store(spot, twice * d_rate)
                    tl.store(spot + 1, twice * d_lam)

        if DERIVATIVE:
            arrivals += GROUP
            _arrive(counters, GROUP)
            _wait(counters, arrivals, GROUP)
            every = tl.arange(0, triton.next_power_of_2(N_TILES))
            along = tl.sum(tl.load(partials + every, mask=every < N_TILES, other=0.0, cache_modifier=".cg"))
            square = tl.load(partials + N_TILES + every, mask=every < N_TILES, other=0.0, cache_modifier=".cg")
            change = alive * along * back / trace
            if rank == 0:
                tl.store(next_norms + image, given * tl.sqrt(tl.sum(square)) + tl.abs(change) * tl.sqrt(D * 1.0))
            for tile in range(rank + zero, N_TILES, GROUP):
                first_row, _, on_diagonal = tile_corner(tile, SIDE // BLOCK, BLOCK)
                if on_diagonal:
                    at = first + tile * (BLOCK * BLOCK)
                    add_to_diagonal(out + at, change, D - first_row, BLOCK)
