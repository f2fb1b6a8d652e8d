"""One stage of the iteration on one tile: products of slots of the workspace, and their derivatives."""

import triton
import triton.language as tl

from .program import SLOTS
from .tiles import load_planes, load_value, multiply, store_value

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
    for start in range(0, SIDE, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        c, c_low = load_planes(workspace, right, columns, k, SIDE, PLANES)
        a, a_low = load_planes(workspace, left, rows, k, SIDE, PLANES)
        total = multiply(a, a_low, c, c_low, total, PLANES)
        if DERIVATIVE:
            dc, dc_low = load_planes(workspace, right + D_SLOT, columns, k, SIDE, PLANES)
            da, da_low = load_planes(workspace, left + D_SLOT, rows, k, SIDE, PLANES)
            d_total = multiply(da, da_low, c, c_low, d_total, PLANES)
            d_total = multiply(a, a_low, dc, dc_low, d_total, PLANES)
    return total, d_total


@triton.jit
def symmetric(value, diagonal):
    """A tile on the diagonal made exactly symmetric."""
    if diagonal:
        value = 0.5 * (value + tl.trans(value))
    return value


@triton.jit
def stage(
    workspace, left, right, out, copy, alpha, ratio, gamma, rows, columns, diagonal,
    SIDE: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr, PLANES: tl.constexpr, DERIVATIVE: tl.constexpr,
):  # fmt: skip
    """Stores α(LC + ratio·L) + γI, and its derivative, into the slot ``out``, and into ``copy`` unless that is −1."""
    total, d_total = products(workspace, left, right, ratio, rows, columns, SIDE, BLOCK, BLOCK_K, PLANES, DERIVATIVE)
    value = symmetric(alpha * total + tl.where(rows[:, None] == columns[None, :], gamma, 0.0), diagonal)
    store_value(workspace, out, value, rows, columns, diagonal, SIDE, PLANES)
    if copy >= 0:
        store_value(workspace, copy, value, rows, columns, diagonal, SIDE, PLANES)
    if DERIVATIVE:
        slope = symmetric(alpha * d_total, diagonal)
        store_value(workspace, out + D_SLOT, slope, rows, columns, diagonal, SIDE, PLANES)
        if copy >= 0:
            store_value(workspace, copy + D_SLOT, slope, rows, columns, diagonal, SIDE, PLANES)
