"""GEMM of one stage on one tile: a product of two slots and its derivative, linear epilogue."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from .layout import join, load_planes, store_planes
from .schedule import SLOTS

# Offset from the slot of a matrix to that of its derivative.
DERIVATIVE_SLOT: tl.constexpr = tl.constexpr(SLOTS)


class StageArgs(NamedTuple):
    """One row of the schedule: out ← αLC + βL + δK + γI, on slots."""

    left: Any  # slot of L
    right: Any  # slot of C
    out: Any
    term: Any  # slot of K, negative without one
    next_waits: Any  # whether the next stage needs what this one stores
    zero: Any  # 0, which the compiler does not know
    alpha: Any
    beta: Any
    delta: Any
    gamma: Any
    last: Any  # whether the result leaves the slots


@triton.jit
def load_stage(schedule, index):
    """One row of the schedule; loads of unused fields are eliminated by the compiler."""
    row, weight = schedule.stages + 6 * index, schedule.weights + 4 * index
    return StageArgs(
        tl.load(row), tl.load(row + 1), tl.load(row + 2), tl.load(row + 3), tl.load(row + 4), tl.load(row + 5),
        tl.load(weight), tl.load(weight + 1), tl.load(weight + 2), tl.load(weight + 3),
        index == schedule.n_stages - 1,
    )  # fmt: skip


@triton.jit
def _multiply(slots, stage, side, corner, CONFIG: tl.constexpr):
    """Compute a tile of LC and, for derivatives, of dL·C + L·dC (else zero)."""
    BLOCK: tl.constexpr = CONFIG.BLOCK
    BLOCK_K: tl.constexpr = CONFIG.BLOCK_K
    SIDE: tl.constexpr = CONFIG.SIDE
    PLANES: tl.constexpr = CONFIG.PLANES
    # Tensor cores truncate addends that are small against the accumulator, and each MMA depends on
    # its accumulator. So the low-order products and the two halves of the derivative have
    # accumulators of their own.
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    small = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    d_total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    d_other = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    d_small = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    # A bound known only at run time keeps the loop rolled: unrolled, it is too much code.
    tl.assume(side >= BLOCK_K)
    rows, columns = corner.row + tl.arange(0, BLOCK), corner.column + tl.arange(0, BLOCK)
    for start in range(0, side, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        c, c_low = load_planes(slots, stage.right, columns, inner, SIDE, PLANES)
        a, a_low = load_planes(slots, stage.left, rows, inner, SIDE, PLANES)
        if PLANES == 1:
            total = tl.dot(a, tl.trans(c), total)
        if CONFIG.DERIVATIVE:
            dc, dc_low = load_planes(slots, stage.right + DERIVATIVE_SLOT, columns, inner, SIDE, PLANES)
            da, da_low = load_planes(slots, stage.left + DERIVATIVE_SLOT, rows, inner, SIDE, PLANES)
        # An MMA waits for all others before the next one on the same accumulator. Accumulators
        # alternate, so that the last MMA on each stays in flight while the next k-slice is loaded.
        if PLANES == 2:
            if CONFIG.DERIVATIVE:
                d_small = tl.dot(da_low, tl.trans(c), d_small)
            small = tl.dot(a_low, tl.trans(c), small)
            if CONFIG.DERIVATIVE:
                d_small = tl.dot(da, tl.trans(c_low), d_small)
            total = tl.dot(a, tl.trans(c), total)
            if CONFIG.DERIVATIVE:
                d_small = tl.dot(a_low, tl.trans(dc), d_small)
        if CONFIG.DERIVATIVE:
            d_total = tl.dot(da, tl.trans(c), d_total)
            d_other = tl.dot(a, tl.trans(dc), d_other)
        if PLANES == 2:
            small = tl.dot(a, tl.trans(c_low), small)
            if CONFIG.DERIVATIVE:
                d_small = tl.dot(a, tl.trans(dc_low), d_small)
    return total + small, d_total + (d_other + d_small)


@triton.jit
def gemm(slots, result, stage, side, corner, lanes, CONFIG: tl.constexpr):
    """Compute a stage on one tile; ``side`` is CONFIG.SIDE as a run-time value."""
    total, d_total = _multiply(slots, stage, side, corner, CONFIG)
    left = load_tile(slots, stage.left, corner, lanes, CONFIG)
    store_stage(total, d_total, left, slots, result, stage, corner, lanes, corner.row != corner.column, CONFIG)


@triton.jit
def load_tile(slots, slot, corner, lanes, CONFIG: tl.constexpr):
    """Load the planes of a tile that this block stored, and of its derivative (else the same)."""
    rows, columns = corner.row + lanes.rows, corner.column + lanes.columns
    planes = load_planes(slots, slot, rows, columns, CONFIG.SIDE, CONFIG.PLANES)
    d_planes = planes
    if CONFIG.DERIVATIVE:
        d_planes = load_planes(slots, slot + DERIVATIVE_SLOT, rows, columns, CONFIG.SIDE, CONFIG.PLANES)
    return planes, d_planes


@triton.jit
def store_stage(total, d_total, left, slots, result, stage, corner, lanes, mirror, CONFIG: tl.constexpr):
    """Store a tile of αLC + βL + δK + γI and its derivative, in slots or, at last, in ``result``.

    ``total`` and ``d_total`` are tiles of LC and its derivative, ``left`` the tile
    of L (:func:`load_tile`).
    """
    SIDE: tl.constexpr = CONFIG.SIDE
    PLANES: tl.constexpr = CONFIG.PLANES
    at = lanes.rows[:, None] * CONFIG.BLOCK + lanes.columns[None, :]
    rows, columns = corner.row + lanes.rows, corner.column + lanes.columns
    value = stage.alpha * total + stage.beta * join(left[0], PLANES)
    value += tl.where(rows[:, None] == columns[None, :], stage.gamma, 0.0)
    if stage.term >= 0:
        value += stage.delta * join(load_planes(slots, stage.term, rows, columns, SIDE, PLANES), PLANES)
    if stage.last:
        tl.store(result + at, value)
    else:
        store_planes(slots, stage.out, value, rows, columns, mirror, SIDE, PLANES)
    if CONFIG.DERIVATIVE:
        slope = stage.alpha * d_total + stage.beta * join(left[1], PLANES)
        if stage.term >= 0:
            term = load_planes(slots, stage.term + DERIVATIVE_SLOT, rows, columns, SIDE, PLANES)
            slope += stage.delta * join(term, PLANES)
        if stage.last:
            tl.store(result + CONFIG.BLOCK * CONFIG.BLOCK + at, slope)
        else:
            store_planes(slots, stage.out + DERIVATIVE_SLOT, slope, rows, columns, mirror, SIDE, PLANES)
