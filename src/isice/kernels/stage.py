"""One stage of the iteration on one tile: a product of slots of the workspace, and its derivative."""

import triton
import triton.language as tl

from .program import SLOTS
from .tiles import load_planes, load_value, store_value

# The derivative of the matrix in a slot lies this many slots further on.
D_SLOT: tl.constexpr = tl.constexpr(SLOTS)


@triton.jit
def products(
    workspace, left, right, ratio, rows, columns,
    SIDE: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr, PLANES: tl.constexpr, DERIVATIVE: tl.constexpr,
):  # fmt: skip
    """A tile of LC + ratio·L and, for derivatives, of dL·C + L·dC + ratio·dL (else zero)."""
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    d_total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    if ratio != 0.0:
        total = ratio * load_value(workspace, left, rows, columns, SIDE, PLANES)
        if DERIVATIVE:
            d_total = ratio * load_value(workspace, left + D_SLOT, rows, columns, SIDE, PLANES)
    # Tensor cores cut off what is small against their sum, and a sum waits for itself: small products, and the two
    # halves of the derivative, have sums of their own.
    d_other = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    small = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    d_small = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, SIDE, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        c, c_low = load_planes(workspace, right, columns, k, SIDE, PLANES)
        a, a_low = load_planes(workspace, left, rows, k, SIDE, PLANES)
        total = tl.dot(a, tl.trans(c), total)
        if PLANES == 2:
            small = tl.dot(a_low, tl.trans(c), small)
            small = tl.dot(a, tl.trans(c_low), small)
        if DERIVATIVE:
            dc, dc_low = load_planes(workspace, right + D_SLOT, columns, k, SIDE, PLANES)
            da, da_low = load_planes(workspace, left + D_SLOT, rows, k, SIDE, PLANES)
            d_total = tl.dot(da, tl.trans(c), d_total)
            d_other = tl.dot(a, tl.trans(dc), d_other)
            if PLANES == 2:
                d_small = tl.dot(da_low, tl.trans(c), d_small)
                d_small = tl.dot(da, tl.trans(c_low), d_small)
                d_small = tl.dot(a_low, tl.trans(dc), d_small)
                d_small = tl.dot(a, tl.trans(dc_low), d_small)
    return total + small, d_total + (d_other + d_small)


@triton.jit
def symmetric(value, diagonal):
    """A tile on the diagonal made exactly symmetric."""
    if diagonal:
        value = 0.5 * (value + tl.trans(value))
    return value


@triton.jit
def stage(
    workspace, result, left, right, out, last, alpha, ratio, gamma, rows, columns, diagonal,
    SIDE: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr, PLANES: tl.constexpr, DERIVATIVE: tl.constexpr,
):  # fmt: skip
    """Stores a tile of α(LC + ratio·L) + γI and its derivative: in a slot, or after the last product in ``result``."""
    total, d_total = products(workspace, left, right, ratio, rows, columns, SIDE, BLOCK, BLOCK_K, PLANES, DERIVATIVE)
    whole = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    eye = tl.where(rows[:, None] == columns[None, :], gamma, 0.0)
    value = symmetric(alpha * total + eye, diagonal)
    if last:
        tl.store(result + whole, value)
    else:
        store_value(workspace, out, value, rows, columns, diagonal, SIDE, PLANES)
    if DERIVATIVE:
        slope = symmetric(alpha * d_total, diagonal)
        if last:
            tl.store(result + BLOCK * BLOCK + whole, slope)
        else:
            store_value(workspace, out + D_SLOT, slope, rows, columns, diagonal, SIDE, PLANES)
