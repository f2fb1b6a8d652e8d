"""One stage of the iteration on one tile: a product of slots of the workspace, and its derivative."""

import triton
import triton.language as tl

from .program import SLOTS
from .tiles import load_planes, store_value, value_of

# The derivative of the matrix in a slot lies this many slots further on.
D_SLOT: tl.constexpr = tl.constexpr(SLOTS)


@triton.jit
def products(
    workspace, side, left, right, first_row, first_column, DERIVATIVE: tl.constexpr,
    SIDE: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr, PLANES: tl.constexpr,
):  # fmt: skip
    """A tile of LC and, for derivatives, of dL·C + L·dC (else zero)."""
    # Tensor cores cut off what is small against their sum, and a sum waits for itself: small products, and the two
    # halves of the derivative, have sums of their own.
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    small = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    d_total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    d_other = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    d_small = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    # A bound known only at run time keeps the loop rolled: unrolled, it is too much code.
    tl.assume(side >= BLOCK_K)
    rows, columns = first_row + tl.arange(0, BLOCK), first_column + tl.arange(0, BLOCK)
    for start in range(0, side, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        c, c_low = load_planes(workspace, right, columns, inner, SIDE, PLANES)
        a, a_low = load_planes(workspace, left, rows, inner, SIDE, PLANES)
        if PLANES == 1:
            total = tl.dot(a, tl.trans(c), total)
        if DERIVATIVE:
            dc, dc_low = load_planes(workspace, right + D_SLOT, columns, inner, SIDE, PLANES)
            da, da_low = load_planes(workspace, left + D_SLOT, rows, inner, SIDE, PLANES)
        # A product waits for all others before the next one adds to its sum. So these begin, others in between, and
        # the last of each sum stay in flight while the next tiles are awaited.
        if PLANES == 2:
            if DERIVATIVE:
                d_small = tl.dot(da_low, tl.trans(c), d_small)
            small = tl.dot(a_low, tl.trans(c), small)
            if DERIVATIVE:
                d_small = tl.dot(da, tl.trans(c_low), d_small)
            total = tl.dot(a, tl.trans(c), total)
            if DERIVATIVE:
                d_small = tl.dot(a_low, tl.trans(dc), d_small)
        if DERIVATIVE:
            d_total = tl.dot(da, tl.trans(c), d_total)
            d_other = tl.dot(a, tl.trans(dc), d_other)
        if PLANES == 2:
            small = tl.dot(a, tl.trans(c_low), small)
            if DERIVATIVE:
                d_small = tl.dot(a, tl.trans(dc_low), d_small)
    return total + small, d_total + (d_other + d_small)


@triton.jit
def stage(
    workspace, side, result, left, right, out, term, last, alpha, beta, delta, gamma,
    first_row, first_column, DERIVATIVE: tl.constexpr,
    SIDE: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr, PLANES: tl.constexpr,
):  # fmt: skip
    """A stage on one tile: :func:`finish` of :func:`products`."""
    total, d_total = products(
        workspace, side, left, right, first_row, first_column, DERIVATIVE,
        SIDE, BLOCK, BLOCK_K, PLANES,
    )  # fmt: skip
    line = tl.arange(0, BLOCK)
    left_tile = load_own(workspace, left, first_row, first_column, line, line, DERIVATIVE, SIDE, PLANES)
    finish(
        total, d_total, left_tile, workspace, result, out, term, last, alpha, beta, delta, gamma,
        first_row, first_column, line, line, first_row != first_column, DERIVATIVE, SIDE, BLOCK, PLANES,
    )  # fmt: skip


@triton.jit
def load_own(
    workspace, slot, first_row, first_column, lines, columns,
    DERIVATIVE: tl.constexpr, SIDE: tl.constexpr, PLANES: tl.constexpr,
):  # fmt: skip
    """A tile that the block stored itself, and that of the derivative (else the same)."""
    rows, columns = first_row + lines, first_column + columns
    planes = load_planes(workspace, slot, rows, columns, SIDE, PLANES)
    d_planes = planes
    if DERIVATIVE:
        d_planes = load_planes(workspace, slot + D_SLOT, rows, columns, SIDE, PLANES)
    return planes, d_planes


@triton.jit
def finish(
    total, d_total, left_tile, workspace, result, out, term, last, alpha, beta, delta, gamma, first_row, first_column,
    lines, columns, mirror, DERIVATIVE: tl.constexpr, SIDE: tl.constexpr, BLOCK: tl.constexpr, PLANES: tl.constexpr,
):  # fmt: skip
    """Stores a tile of αLC + βL + δK + γI and its derivative: in slots, or after the last product in ``result``.

    The tile of L is given (:func:`load_own`); K is in the slot ``term``, negative if there is none to add. Lines and
    columns of a tile are given, as to ``borders.prepare``.
    """
    whole = lines[:, None] * BLOCK + columns[None, :]
    rows, columns = first_row + lines, first_column + columns
    value = alpha * total + beta * value_of(left_tile[0], PLANES)
    value += tl.where(rows[:, None] == columns[None, :], gamma, 0.0)
    if term >= 0:
        value += delta * value_of(load_planes(workspace, term, rows, columns, SIDE, PLANES), PLANES)
    if last:
        tl.store(result + whole, value)
    else:
        store_value(workspace, out, value, rows, columns, mirror, SIDE, PLANES)
    if DERIVATIVE:
        slope = alpha * d_total + beta * value_of(left_tile[1], PLANES)
        if term >= 0:
            slope += delta * value_of(load_planes(workspace, term + D_SLOT, rows, columns, SIDE, PLANES), PLANES)
        if last:
            tl.store(result + BLOCK * BLOCK + whole, slope)
        else:
            store_value(workspace, out + D_SLOT, slope, rows, columns, mirror, SIDE, PLANES)
