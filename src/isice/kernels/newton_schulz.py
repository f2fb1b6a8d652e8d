"""The Newton–Schulz iteration in one launch: the twin of ``ops/newton_schulz.py`` and of the loop of ``ops/isice.py``.

A group of blocks carries one matrix through the whole iteration, each block the same tiles in every stage, and waits
for the others between stages. All blocks are on the GPU at once (a cooperative launch), so waiting cannot deadlock,
and the matrices in work are few enough to stay in the second cache level. The same launch adds α and divides by the
trace before the iteration; after it, it scales back, and takes a step of iSICE or that step's backward pass. Matrices
come and go tiled, so that this costs few instructions: a block is alone with its latencies.
"""

import triton
import triton.language as tl

from .program import M, R, T
from .sparse_step import part_cotangents, sparse_step
from .stage import D_SLOT, stage
from .tiles import diagonal_places, store_value, tile_corner, trace_of

# A direction enters the iteration with this norm: then its growth fits the range of float16, and so do small entries.
_DIRECTION_NORM: tl.constexpr = tl.constexpr(8.0)
_T: tl.constexpr = tl.constexpr(T)
_M: tl.constexpr = tl.constexpr(M)
_FACTOR: tl.constexpr = tl.constexpr(R + 1)


@triton.jit
def _order_copies(BULK: tl.constexpr):
    """The copy engine sees what was stored before only after this fence, on both sides of a wait."""
    if BULK:
        tl.inline_asm_elementwise(
            "fence.proxy.async.global; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def _arrive(counter, GROUP: tl.constexpr, BULK: tl.constexpr):
    """Says that this block has come here; what it stored before is visible to those who wait."""
    _order_copies(BULK)
    tl.debug_barrier()
    if GROUP > 1:
        tl.atomic_add(counter, 1, sem="release")


@triton.jit
def _wait(counter, target, GROUP: tl.constexpr, BULK: tl.constexpr):
    """Returns once the blocks of the group have arrived so many times."""
    if GROUP > 1:
        seen = tl.atomic_add(counter, 0, sem="acquire")
        while seen < target:
            seen = tl.atomic_add(counter, 0, sem="acquire")
        tl.debug_barrier()
    _order_copies(BULK)


@triton.jit
def _power(trace, POWER: tl.constexpr):
    """The power of the trace that the result is multiplied by."""
    back = 1.0 / trace
    if POWER == 0.5:
        back = tl.sqrt(trace)
    elif POWER == -0.5:
        back = 1.0 / tl.sqrt(trace)
    return back


@triton.jit
def _numbers(rates, lams, norms, image, beta, STEP: tl.constexpr, DERIVATIVE: tl.constexpr):
    """Rate and λ of a step, a bound on the norm of the direction. Loaded twice: they need no registers meanwhile."""
    rate, lam, norm = 0.0, 0.0, 1.0
    if STEP:
        rate, lam = beta * tl.load(rates + image), tl.load(lams + image)
    if DERIVATIVE:
        norm = tl.load(norms + image)
        if STEP:
            norm *= 2 * tl.abs(rate)
    return rate, lam, norm


@triton.jit
def _add_to_diagonal(tile, value, n_rows, BLOCK: tl.constexpr):
    """Adds a number to the first entries of the diagonal of a tile."""
    line = tl.arange(0, BLOCK)
    spots = tile + line * (BLOCK + 1)
    tl.store(spots, tl.load(spots) + value, mask=line < n_rows)


@triton.jit
def _trace_one(tile, diagonal, D, shift, trace, alive):
    """A tile of T: the shifted matrix divided by its trace; I/D where there is no variance."""
    return tile * (1.0 / trace) + tl.where(diagonal, shift / trace + (1.0 - alive) / D, 0.0)


@triton.jit
def _direction(cotangent, alive_parts, at, rate, STEP: tl.constexpr):
    """Entries of the symmetric cotangent of the result of the iteration."""
    grad = tl.load(cotangent + at)
    if STEP:
        d_plus, d_minus = part_cotangents(tl.load(alive_parts + at), grad)
        grad = rate * (d_plus + d_minus)
    return grad


@triton.jit
def _prepare(
    workspace, matrix, grad, alive_parts, rate, trace, alive, scale, m_shift, d_scale,
    first_row, first_column, D, shift,
    INVERSE_ROOT: tl.constexpr, DERIVATIVE: tl.constexpr, STEP: tl.constexpr,
    SIDE: tl.constexpr, BLOCK: tl.constexpr, PLANES: tl.constexpr,
):  # fmt: skip
    """Stores a tile of T, of M, of the first factor of an inverse root, and of their derivatives."""
    line, on_diagonal = tl.arange(0, BLOCK), first_row == first_column
    rows, columns, at = first_row + line, first_column + line, line[:, None] * BLOCK + line[None, :]
    eye = rows[:, None] == columns[None, :]
    t = _trace_one(tl.load(matrix + at), eye & (rows < D)[:, None], D, shift, trace, alive)
    store_value(workspace, _T, t * scale, rows, columns, on_diagonal, SIDE, PLANES)
    if on_diagonal:
        store_value(workspace, _M, t * scale - tl.where(eye, m_shift, 0.0), rows, columns, True, SIDE, PLANES)
    if INVERSE_ROOT:
        first = tl.where(eye, 1.5, 0.0) - 0.5 * t
        store_value(workspace, _FACTOR, first * scale, rows, columns, on_diagonal, SIDE, PLANES)
    if DERIVATIVE:
        dt = d_scale * _direction(grad, alive_parts, at, rate, STEP)
        store_value(workspace, _T + D_SLOT, dt, rows, columns, on_diagonal, SIDE, PLANES)
        if INVERSE_ROOT:
            store_value(workspace, _FACTOR + D_SLOT, -0.5 * dt, rows, columns, on_diagonal, SIDE, PLANES)


@triton.jit
def _leave_value(value, out, matrix, sigma, alive_parts, at, rate, lam, inside, STEP: tl.constexpr):
    """Stores a strip of the result, or of the next S with ``value`` as ∇₁."""
    if STEP:
        value, parts = sparse_step(tl.load(matrix + at), value - tl.load(sigma + at), rate, lam)
        tl.store(alive_parts + at, parts)
    tl.store(out + at, tl.where(inside, value, 0.0))


@triton.jit
def _leave_slope(
    value, slope, out, matrix, grad, sigma, alive_parts, d_sigma, at, diagonal, rate, lam, trace, alive, back, D, shift,
    POWER: tl.constexpr, STEP: tl.constexpr, MOMENTS: tl.constexpr,
):  # fmt: skip
    """Stores a strip of the cotangent of the source; returns what is summed for the trace, for the norm, and for the
    cotangents of rate and λ. Beyond D the cotangent is zero, and with it all of that.
    """
    s = tl.load(matrix + at)
    direction = _direction(grad, alive_parts, at, rate, STEP)
    t = _trace_one(s, diagonal, D, shift, trace, alive)
    along = POWER * direction * value - slope * t
    d_rate, d_lam = along, along
    slope *= back / trace
    if STEP:
        d_plus, d_minus = part_cotangents(tl.load(alive_parts + at), tl.load(grad + at))
        slope += tl.where(s > 0, d_plus, 0.0) + tl.where(s < 0, d_minus, 0.0)
        if MOMENTS:
            gradient = back * value - tl.load(sigma + at)
            d_rate = d_plus * (gradient - lam) + d_minus * (gradient + lam)
            d_lam = rate * (d_minus - d_plus)
        tl.store(d_sigma + at, tl.load(d_sigma + at) - direction)
    tl.store(out + at, slope)
    return along, slope * slope, d_rate, d_lam


@triton.jit
def _leave(
    result, out, matrix, grad, sigma, alive_parts, d_sigma, rate, lam, trace, alive, back, from_norm,
    first_row, first_column, D, shift,
    POWER: tl.constexpr, DERIVATIVE: tl.constexpr, STEP: tl.constexpr, MOMENTS: tl.constexpr, BLOCK: tl.constexpr,
    STRIP: tl.constexpr,
):  # fmt: skip
    """Stores a finished tile, strip by strip; returns the sums over :func:`_leave_slope`."""
    columns = first_column + tl.arange(0, BLOCK)
    along = tl.zeros((STRIP, BLOCK), dtype=tl.float32)
    square, d_rate, d_lam = along, along, along
    for strip in range(0, BLOCK, STRIP):
        lines = strip + tl.arange(0, STRIP)
        at = lines[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
        rows = first_row + lines
        inside = (rows < D)[:, None] & (columns < D)[None, :]
        value = tl.load(result + at)
        if DERIVATIVE:
            slope = tl.load(result + BLOCK * BLOCK + at) * from_norm
            sums = _leave_slope(
                value, slope, out, matrix, grad, sigma, alive_parts, d_sigma, at,
                (rows[:, None] == columns[None, :]) & inside, rate, lam, trace, alive, back, D, shift,
                POWER, STEP, MOMENTS,
            )  # fmt: skip
            along, square = along + sums[0], square + sums[1]
            if MOMENTS:
                d_rate, d_lam = d_rate + sums[2], d_lam + sums[3]
        else:
            _leave_value(back * value, out, matrix, sigma, alive_parts, at, rate, lam, inside, STEP)
    if MOMENTS:
        return tl.sum(along), tl.sum(square), tl.sum(d_rate), tl.sum(d_lam)
    return tl.sum(along), tl.sum(square), 0.0, 0.0


@triton.jit(
    do_not_specialize=["n_stages", "batch", "D", "side"],
    do_not_specialize_on_alignment=["norms", "next_norms", "rates", "lams", "moments"],
)
def iterate(
    source, cotangent, norms, out, next_norms,  # tiled matrices, and bounds on the norms (B,) of cotangents
    sigma, alive_parts, rates, lams, d_sigma, moments, beta,  # a step of iSICE: tiled; values (B,); sums (B, tiles, 2)
    workspace, planes,  # slots of each group, and a descriptor of all of them as one matrix
    partials, counters, results,  # of each group: two sums for each tile, arrivals, tiles of the result
    slots, weights, n_stages,  # the program
    batch, D, side, shift, scale, m_shift, derivative_scale,
    POWER: tl.constexpr, DERIVATIVE: tl.constexpr, STEP: tl.constexpr, MOMENTS: tl.constexpr,
    SIDE: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr, STRIP: tl.constexpr, PLANES: tl.constexpr,
    N_TILES: tl.constexpr, N_SLOTS: tl.constexpr, GROUP: tl.constexpr, BULK: tl.constexpr,
):  # fmt: skip
    """Carries the matrices ``group``, ``group + n_groups``, … through the iteration."""
    group, rank = tl.program_id(0) // GROUP, tl.program_id(0) % GROUP
    n_groups = tl.num_programs(0) // GROUP
    base = group * (N_SLOTS * PLANES * SIDE)
    workspace += group.to(tl.int64) * (N_SLOTS * PLANES * SIDE * SIDE)
    partials += group * (2 * N_TILES)
    counters += group
    results += group * (2 * N_TILES * BLOCK * BLOCK)
    arrivals = 0
    # The first blocks of a launch share multiprocessors while others are free: a last, small round goes past them.
    for image in range((group + n_groups - 2) % n_groups, batch, n_groups):
        # The compiler does not know that it is zero: what depends on it is computed where it is used, instead of once
        # for all matrices, in registers that the products need.
        zero = tl.load(slots + 7)
        first = tl.full([], image, tl.int64) * (N_TILES * BLOCK * BLOCK)
        rate, lam, norm = _numbers(rates, lams, norms, image, beta, STEP, DERIVATIVE)
        to_norm = tl.where(norm > 0, _DIRECTION_NORM / norm, 0.0)
        index = tl.arange(0, triton.next_power_of_2(SIDE)) + zero
        diagonal_at = source + first + diagonal_places(index, SIDE // BLOCK, BLOCK)
        diagonal = tl.load(diagonal_at, mask=index < D, other=0.0)
        trace, alive = trace_of(diagonal, D, shift)
        if not DERIVATIVE:
            _wait(counters, arrivals, GROUP, BULK)  # until nobody reads the slots of the matrix before
        for tile in range(rank + zero, N_TILES, GROUP):
            first_row, first_column, _ = tile_corner(tile, SIDE // BLOCK, BLOCK)
            at = first + tile * (BLOCK * BLOCK)
            _prepare(
                workspace, source + at, cotangent + at, alive_parts + at, rate, trace, alive, scale, m_shift,
                to_norm * scale * derivative_scale, first_row, first_column, D, shift,
                POWER == -0.5, DERIVATIVE, STEP, SIDE, BLOCK, PLANES,
            )  # fmt: skip

        wait = 1
        for index_of_stage in range(0, n_stages):
            # The row is read before the wait, so that it is there after it; whether to wait, in the row before.
            row, weight = slots + 8 * index_of_stage, weights + 2 * index_of_stage
            left = tl.load(row), tl.load(row + 1)
            right = tl.load(row + 2), tl.load(row + 3)
            into = tl.load(row + 4), tl.load(row + 5)
            next_wait, zero = tl.load(row + 6), tl.load(row + 7)
            alpha, gamma = tl.load(weight), tl.load(weight + 1)
            if wait != 0:
                arrivals += GROUP
                _arrive(counters, GROUP, BULK)
                _wait(counters, arrivals, GROUP, BULK)
            wait = next_wait
            for tile in range(rank + zero, N_TILES, GROUP):
                first_row, first_column, _ = tile_corner(tile, SIDE // BLOCK, BLOCK)
                stage(
                    workspace, planes, base, side, results + 2 * tile * BLOCK * BLOCK, left, right, into,
                    index_of_stage == n_stages - 1, alpha, gamma, m_shift, first_row, first_column, DERIVATIVE,
                    SIDE, BLOCK, BLOCK_K, PLANES, BULK,
                )  # fmt: skip

        back = _power(trace, POWER)
        rate, lam, norm = _numbers(rates, lams, norms, image, beta, STEP, DERIVATIVE)
        if not DERIVATIVE:
            arrivals += GROUP
            _arrive(counters, GROUP, BULK)
        else:
            tl.debug_barrier()
        for tile in range(rank + zero, N_TILES, GROUP):
            first_row, first_column, on_diagonal = tile_corner(tile, SIDE // BLOCK, BLOCK)
            at = first + tile * (BLOCK * BLOCK)
            along, square, d_rate, d_lam = _leave(
                results + 2 * tile * BLOCK * BLOCK, out + at, source + at, cotangent + at, sigma + at, alive_parts + at,
                d_sigma + at, rate, lam, trace, alive, back, norm / (_DIRECTION_NORM * derivative_scale),
                first_row, first_column, D, shift, POWER, DERIVATIVE, STEP, MOMENTS, BLOCK, STRIP,
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
            _arrive(counters, GROUP, BULK)
            _wait(counters, arrivals, GROUP, BULK)
            every = tl.arange(0, triton.next_power_of_2(N_TILES))
            along = tl.sum(tl.load(partials + every, mask=every < N_TILES, other=0.0, cache_modifier=".cg"))
            square = tl.load(partials + N_TILES + every, mask=every < N_TILES, other=0.0, cache_modifier=".cg")
            change = alive * along * back / trace
            if rank == 0:
                tl.store(next_norms + image, tl.sqrt(tl.sum(square)) + tl.abs(change) * tl.sqrt(D * 1.0))
            for tile in range(rank + zero, N_TILES, GROUP):
                first_row, _, on_diagonal = tile_corner(tile, SIDE // BLOCK, BLOCK)
                if on_diagonal:
                    at = first + tile * (BLOCK * BLOCK)
                    _add_to_diagonal(out + at, change, D - first_row, BLOCK)
