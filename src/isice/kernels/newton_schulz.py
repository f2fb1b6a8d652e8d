"""The Newton–Schulz iteration in one launch: the twin of ``ops/newton_schulz.py`` and of the loop of ``ops/isice.py``.

A group of blocks carries one matrix through the whole iteration, each block the same tiles in every stage, and waits
for the others between stages. All blocks are on the GPU at once (a cooperative launch), so waiting cannot deadlock,
and the matrices in work are few enough to stay in the second cache level. The same launch divides by the trace and
adds α before the iteration; after it, it scales back, packs or mirrors, and takes a step of iSICE or that step's
backward pass.
"""

import triton
import triton.language as tl

from .program import R, T
from .sparse_step import part_cotangents, sparse_step
from .stage import D_SLOT, stage
from .tiles import load_tile, place_on_diagonal, store_tile, store_value, tile_corner, trace_of

# A direction enters the iteration with this norm: then its growth fits the range of float16, and so do small entries.
_DIRECTION_NORM: tl.constexpr = tl.constexpr(8.0)
_T: tl.constexpr = tl.constexpr(T)
_FACTOR: tl.constexpr = tl.constexpr(R + 1)


@triton.jit
def _wait_for_group(counter, target, GROUP: tl.constexpr):
    """Returns once every block of the group has come here; what they stored before is then visible."""
    tl.debug_barrier()
    if GROUP > 1:
        seen = tl.atomic_add(counter, 1, sem="acq_rel") + 1
        while seen < target:
            seen = tl.atomic_add(counter, 0, sem="acquire")
        tl.debug_barrier()


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
def _add_to_diagonal(matrix, value, first_row, D, PACKED: tl.constexpr, BLOCK: tl.constexpr):
    """Adds a number to a part of the diagonal."""
    rows = first_row + tl.arange(0, BLOCK)
    spots = matrix + place_on_diagonal(rows, D, PACKED)
    tl.store(spots, tl.load(spots, mask=rows < D, other=0.0) + value, mask=rows < D)


@triton.jit
def _trace_one(matrix, rows, columns, D, shift, trace, alive, PACKED: tl.constexpr):
    """A tile of T: the shifted matrix divided by its trace; I/D where there is no variance."""
    tile = load_tile(matrix, rows, columns, D, PACKED)
    diagonal = (rows[:, None] == columns[None, :]) & (rows[:, None] < D)
    return (tile + tl.where(diagonal, shift, 0.0)) / trace + tl.where(diagonal, (1.0 - alive) / D, 0.0)


@triton.jit
def _direction(
    cotangent, alive_parts, rate, rows, columns, D, PACKED: tl.constexpr, STEP: tl.constexpr, VECTOR: tl.constexpr
):
    """A tile of the symmetric cotangent of the result of the iteration."""
    grad = load_tile(cotangent, rows, columns, D, PACKED)
    if STEP:
        d_plus, d_minus = part_cotangents(load_tile(alive_parts, rows, columns, D, True), grad)
        grad = rate * (d_plus + d_minus)
    elif VECTOR:
        # An entry of the vector stands for two entries of the matrix.
        grad = tl.where(rows[:, None] == columns[None, :], grad, 0.5 * grad)
    elif not PACKED:
        grad = 0.5 * (grad + tl.trans(load_tile(cotangent, columns, rows, D, False)))
    return grad


@triton.jit
def _prepare(
    workspace, matrix, grad, alive_parts, rate, trace, alive, scale, d_scale, rows, columns, diagonal, D, shift,
    INVERSE_ROOT: tl.constexpr, DERIVATIVE: tl.constexpr, STEP: tl.constexpr,
    SOURCE_PACKED: tl.constexpr, GRAD_PACKED: tl.constexpr, GRAD_VECTOR: tl.constexpr,
    SIDE: tl.constexpr, PLANES: tl.constexpr,
):  # fmt: skip
    """Stores a tile of T, of the first factor of an inverse root, and of their derivatives."""
    t = _trace_one(matrix, rows, columns, D, shift, trace, alive, SOURCE_PACKED)
    store_value(workspace, _T, t * scale, rows, columns, diagonal, SIDE, PLANES)
    if INVERSE_ROOT:
        eye = tl.where(rows[:, None] == columns[None, :], 1.5, 0.0)
        store_value(workspace, _FACTOR, (eye - 0.5 * t) * scale, rows, columns, diagonal, SIDE, PLANES)
    if DERIVATIVE:
        dt = d_scale * _direction(grad, alive_parts, rate, rows, columns, D, GRAD_PACKED, STEP, GRAD_VECTOR)
        store_value(workspace, _T + D_SLOT, dt, rows, columns, diagonal, SIDE, PLANES)
        if INVERSE_ROOT:
            store_value(workspace, _FACTOR + D_SLOT, -0.5 * dt, rows, columns, diagonal, SIDE, PLANES)


@triton.jit
def _leave_value(
    value, result, matrix, sigma, alive_parts, rate, lam, rows, columns, D, STEP: tl.constexpr, PACKED: tl.constexpr
):  # fmt: skip
    """Stores a strip of the result, or of the next S with ``value`` as ∇₁."""
    if STEP:
        s = load_tile(matrix, rows, columns, D, True)
        value, parts = sparse_step(s, value - load_tile(sigma, rows, columns, D, True), rate, lam)
        store_tile(alive_parts, parts, rows, columns, D, True)
    store_tile(result, value, rows, columns, D, PACKED)


@triton.jit
def _leave_slope(
    value, slope, result, matrix, grad, sigma, alive_parts, d_sigma,
    rate, lam, trace, alive, back, rows, columns, D, shift,
    POWER: tl.constexpr, STEP: tl.constexpr, SOURCE_PACKED: tl.constexpr, GRAD_PACKED: tl.constexpr,
    GRAD_VECTOR: tl.constexpr, OUT_PACKED: tl.constexpr,
):  # fmt: skip
    """Stores a strip of the cotangent of the source; sums for the trace and for the cotangents of rate and λ."""
    inside = (rows[:, None] < D) & (columns[None, :] < D)
    direction = _direction(grad, alive_parts, rate, rows, columns, D, GRAD_PACKED, STEP, GRAD_VECTOR)
    t = _trace_one(matrix, rows, columns, D, shift, trace, alive, SOURCE_PACKED)
    along = tl.sum(tl.where(inside, POWER * direction * value - slope * t, 0.0))
    d_rate, d_lam = 0.0, 0.0
    slope *= back / trace
    if STEP:
        s, given = load_tile(matrix, rows, columns, D, True), load_tile(grad, rows, columns, D, True)
        d_plus, d_minus = part_cotangents(load_tile(alive_parts, rows, columns, D, True), given)
        slope += tl.where(s > 0, d_plus, 0.0) + tl.where(s < 0, d_minus, 0.0)
        gradient = back * value - load_tile(sigma, rows, columns, D, True)
        d_rate = tl.sum(tl.where(inside, d_plus * (gradient - lam) + d_minus * (gradient + lam), 0.0))
        d_lam = rate * tl.sum(d_minus - d_plus)
        store_tile(d_sigma, load_tile(d_sigma, rows, columns, D, True) - direction, rows, columns, D, True)
    store_tile(result, slope, rows, columns, D, OUT_PACKED)
    return along, d_rate, d_lam


@triton.jit
def _leave(
    tile, result, matrix, grad, sigma, alive_parts, d_sigma, rate, lam, trace, alive, back, from_norm,
    first_row, first_column, D, shift,
    POWER: tl.constexpr, DERIVATIVE: tl.constexpr, STEP: tl.constexpr, SOURCE_PACKED: tl.constexpr,
    GRAD_PACKED: tl.constexpr, GRAD_VECTOR: tl.constexpr, OUT_PACKED: tl.constexpr,
    BLOCK: tl.constexpr, STRIP: tl.constexpr,
):  # fmt: skip
    """Stores a finished tile, strip by strip; returns the sums of :func:`_leave_slope`."""
    columns = first_column + tl.arange(0, BLOCK)
    along, d_rate, d_lam = 0.0, 0.0, 0.0
    for strip in range(0, BLOCK, STRIP):
        lines = strip + tl.arange(0, STRIP)
        within = lines[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
        value = tl.load(tile + within)
        if DERIVATIVE:
            slope = tl.load(tile + BLOCK * BLOCK + within) * from_norm
            sums = _leave_slope(
                value, slope, result, matrix, grad, sigma, alive_parts, d_sigma,
                rate, lam, trace, alive, back, first_row + lines, columns, D, shift,
                POWER, STEP, SOURCE_PACKED, GRAD_PACKED, GRAD_VECTOR, OUT_PACKED,
            )  # fmt: skip
            along, d_rate, d_lam = along + sums[0], d_rate + sums[1], d_lam + sums[2]
        else:
            _leave_value(
                back * value, result, matrix, sigma, alive_parts, rate, lam, first_row + lines, columns, D,
                STEP, OUT_PACKED,
            )  # fmt: skip
    return along, d_rate, d_lam


_MATRICES = ["source", "cotangent", "norms", "out", "sigma", "alive_parts", "rates", "lams", "d_sigma", "moments"]


@triton.jit(do_not_specialize=["n_stages", "batch", "D"], do_not_specialize_on_alignment=_MATRICES)
def iterate(
    source, cotangent, norms, out,  # matrices (B, D, D) or packed, and the norms (B,) of the cotangents
    sigma, alive_parts, rates, lams, d_sigma, moments,  # a step of iSICE: packed; values (B,); sums (B, tiles, 2)
    workspace, partials, counters, results,  # of each group: slots, a sum for each tile, arrivals, tiles of the result
    slots, weights, n_stages,  # the program
    batch, D, shift, scale, derivative_scale,
    POWER: tl.constexpr, DERIVATIVE: tl.constexpr, STEP: tl.constexpr,
    SOURCE_PACKED: tl.constexpr, GRAD_PACKED: tl.constexpr, GRAD_VECTOR: tl.constexpr, OUT_PACKED: tl.constexpr,
    SIDE: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr, STRIP: tl.constexpr, PLANES: tl.constexpr,
    N_TILES: tl.constexpr, N_SLOTS: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Carries the matrices ``group``, ``group + n_groups``, … through the iteration."""
    group, rank = tl.program_id(0) // GROUP, tl.program_id(0) % GROUP
    n_groups = tl.num_programs(0) // GROUP
    workspace += group.to(tl.int64) * (N_SLOTS * PLANES * SIDE * SIDE)
    partials += group * N_TILES
    counters += group
    results += group * (2 * N_TILES * BLOCK * BLOCK)
    packed_size = D * (D + 1) // 2
    arrivals = 0
    for image in range(group, batch, n_groups):
        at = tl.full([], image, tl.int64)
        packed = at * packed_size
        matrix = source + (packed if SOURCE_PACKED else at * D * D)
        grad = cotangent + (packed if GRAD_PACKED else at * D * D)
        result = out + (packed if OUT_PACKED else at * D * D)
        rate, lam, norm, to_norm = 0.0, 0.0, 1.0, 1.0
        if STEP:
            rate, lam = tl.load(rates + image), tl.load(lams + image)
        if DERIVATIVE:
            norm = tl.load(norms + image)
            if STEP:
                norm *= 2 * tl.abs(rate)
            to_norm = tl.where(norm > 0, _DIRECTION_NORM / norm, 0.0)
        trace, alive = trace_of(matrix, D, shift, SOURCE_PACKED, triton.next_power_of_2(SIDE))

        for tile in range(rank, N_TILES, GROUP):
            first_row, first_column, diagonal = tile_corner(tile, SIDE // BLOCK, BLOCK)
            for strip in range(0, BLOCK, STRIP):
                rows, columns = first_row + strip + tl.arange(0, STRIP), first_column + tl.arange(0, BLOCK)
                _prepare(
                    workspace, matrix, grad, alive_parts + packed, rate, trace, alive, scale,
                    to_norm * scale * derivative_scale, rows, columns, diagonal, D, shift,
                    POWER == -0.5, DERIVATIVE, STEP, SOURCE_PACKED, GRAD_PACKED, GRAD_VECTOR, SIDE, PLANES,
                )  # fmt: skip

        for index in range(0, n_stages):
            # The row is read before the wait, so that it is there after it.
            slot, weight = slots + 4 * index, weights + 3 * index
            left, right, into, wait = tl.load(slot), tl.load(slot + 1), tl.load(slot + 2), tl.load(slot + 3)
            alpha, ratio, gamma = tl.load(weight), tl.load(weight + 1), tl.load(weight + 2)
            if wait != 0:
                arrivals += GROUP
                _wait_for_group(counters, arrivals, GROUP)
            for tile in range(rank, N_TILES, GROUP):
                first_row, first_column, diagonal = tile_corner(tile, SIDE // BLOCK, BLOCK)
                rows, columns = first_row + tl.arange(0, BLOCK), first_column + tl.arange(0, BLOCK)
                stage(
                    workspace, results + 2 * tile * BLOCK * BLOCK, left, right, into, index == n_stages - 1,
                    alpha, ratio, gamma, rows, columns, diagonal, SIDE, BLOCK, BLOCK_K, PLANES, DERIVATIVE,
                )  # fmt: skip

        tl.debug_barrier()
        back = _power(trace, POWER)
        for tile in range(rank, N_TILES, GROUP):
            first_row, first_column, diagonal = tile_corner(tile, SIDE // BLOCK, BLOCK)
            along, d_rate, d_lam = _leave(
                results + 2 * tile * BLOCK * BLOCK, result, matrix, grad,
                sigma + packed, alive_parts + packed, d_sigma + packed, rate, lam, trace, alive, back,
                norm / (_DIRECTION_NORM * derivative_scale), first_row, first_column, D, shift,
                POWER, DERIVATIVE, STEP, SOURCE_PACKED, GRAD_PACKED, GRAD_VECTOR, OUT_PACKED, BLOCK, STRIP,
            )  # fmt: skip
            if DERIVATIVE:
                twice = tl.where(diagonal, 1.0, 2.0)
                tl.store(partials + tile, twice * along)
                if STEP:
                    tl.store(moments + (at * N_TILES + tile) * 2, twice * d_rate)
                    tl.store(moments + (at * N_TILES + tile) * 2 + 1, twice * d_lam)

        arrivals += GROUP
        _wait_for_group(counters, arrivals, GROUP)
        if DERIVATIVE:
            index = tl.arange(0, triton.next_power_of_2(N_TILES))
            along = tl.sum(tl.load(partials + index, mask=index < N_TILES, other=0.0, cache_modifier=".cg"))
            for tile in range(rank, N_TILES, GROUP):
                first_row, _, diagonal = tile_corner(tile, SIDE // BLOCK, BLOCK)
                if diagonal:
                    _add_to_diagonal(result, alive * along * back / trace, first_row, D, OUT_PACKED, BLOCK)
