"""The covariance of features (B, C, N) and its derivative, one launch each, read as they lie in memory.

Features of 16 bits become float32 before the mean is subtracted, in registers: no float32 copy is made. Sizes and
strides travel as a quotient and a power of two that divides them, from which the compiler knows how wide it may load.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from .program import block_of, tiling
from .tiles import tile_corner

_PRODUCTS = {"accurate": "tf32x3", "fast": "tf32"}
MOST_WIDTH = 128  # positions of a block of the derivative: each block reads two rows of tiles of the cotangent


@triton.jit
def _offsets(index, stride, WIDE: tl.constexpr):
    return (index.to(tl.int64) if WIDE else index) * stride


@triton.jit
def _load(x, rows, positions, C, N, stride_c, stride_n, WIDE: tl.constexpr):
    """Features in float32, zero beyond the last; and which of them exist."""
    inside = (rows < C)[:, None] & (positions < N)[None, :]
    offsets = _offsets(rows, stride_c, WIDE)[:, None] + _offsets(positions, stride_n, WIDE)[None, :]
    return tl.load(x + offsets, mask=inside, other=0.0).to(tl.float32), inside


@triton.jit
def _mean(x, rows, C, N, stride_c, stride_n, WIDE: tl.constexpr, STEP: tl.constexpr):
    """Means of rows, of distances from the first position: a large common offset costs no digits."""
    origin = tl.load(x + _offsets(rows, stride_c, WIDE), mask=rows < C, other=0.0).to(tl.float32)
    total = tl.zeros_like(origin)
    for begin in range(0, N, STEP):
        value, inside = _load(x, rows, begin + tl.arange(0, STEP), C, N, stride_c, stride_n, WIDE)
        total += tl.sum(tl.where(inside, value - origin[:, None], 0.0), axis=1)
    return origin + total / N


@triton.jit
def _store(matrix, value, rows, columns, C):
    inside = (rows < C)[:, None] & (columns < C)[None, :]
    tl.store(matrix + rows[:, None] * C + columns[None, :], value, mask=inside)


@triton.jit
def _value(x, cov, means, C, n_units, stride_b, c_units, s_units, C_UNIT: tl.constexpr, S_UNIT: tl.constexpr,
           N_UNIT: tl.constexpr, WIDE: tl.constexpr, PRODUCT: tl.constexpr, N_TILES: tl.constexpr,
           N_BLOCKS: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, SUM_STEP: tl.constexpr):  # fmt: skip
    image, tile = (tl.program_id(0) // N_TILES).to(tl.int64), tl.program_id(0) % N_TILES
    N, stride_c, stride_n = n_units * N_UNIT, c_units * C_UNIT, s_units * S_UNIT
    x += image * stride_b
    first_row, first_column, diagonal = tile_corner(tile, N_BLOCKS, BLOCK)
    rows, columns = first_row + tl.arange(0, BLOCK), first_column + tl.arange(0, BLOCK)
    row_mean = _mean(x, rows, C, N, stride_c, stride_n, WIDE, SUM_STEP)
    column_mean = _mean(x, columns, C, N, stride_c, stride_n, WIDE, SUM_STEP)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for begin in range(0, N, STEP):
        positions = begin + tl.arange(0, STEP)
        left, inside = _load(x, rows, positions, C, N, stride_c, stride_n, WIDE)
        left = tl.where(inside, left - row_mean[:, None], 0.0)
        right, inside = _load(x, columns, positions, C, N, stride_c, stride_n, WIDE)
        right = tl.where(inside, right - column_mean[:, None], 0.0)
        total = tl.dot(left, tl.trans(right), total, input_precision=PRODUCT)
    # On the diagonal both halves are computed and only the upper one counts, so that the result is exactly symmetric.
    value = total / N
    value = tl.where(rows[:, None] > columns[None, :], tl.trans(value), value)
    cov += image * C * C
    _store(cov, value, rows, columns, C)
    if diagonal:
        tl.store(means + image * C + rows, row_mean, mask=rows < C)
    else:
        _store(cov, tl.trans(value), columns, rows, C)


@triton.jit
def _vjp(x, means, grad, d_x, C, n_units, stride_b, c_units, s_units, out_b, out_c, out_n, C_UNIT: tl.constexpr,
         S_UNIT: tl.constexpr, N_UNIT: tl.constexpr, WIDE: tl.constexpr, PRODUCT: tl.constexpr,
         N_BLOCKS: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr):  # fmt: skip
    N, stride_c, stride_n = n_units * N_UNIT, c_units * C_UNIT, s_units * S_UNIT
    pieces = N_BLOCKS * tl.cdiv(N, WIDTH)
    image, piece = (tl.program_id(0) // pieces).to(tl.int64), tl.program_id(0) % pieces
    x += image * stride_b
    means += image * C
    grad += image * C * C
    rows = piece % N_BLOCKS * BLOCK + tl.arange(0, BLOCK)
    positions = piece // N_BLOCKS * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros((BLOCK, WIDTH), dtype=tl.float32)
    for begin in range(0, C, STEP):
        others = begin + tl.arange(0, STEP)
        straight_inside = (rows < C)[:, None] & (others < C)[None, :]
        across_inside = (others < C)[:, None] & (rows < C)[None, :]
        straight = tl.load(grad + rows[:, None] * C + others[None, :], mask=straight_inside, other=0.0)
        across = tl.load(grad + others[:, None] * C + rows[None, :], mask=across_inside, other=0.0)
        value, inside = _load(x, others, positions, C, N, stride_c, stride_n, WIDE)
        mean = tl.load(means + others, mask=others < C, other=0.0)
        centred = tl.where(inside, value - mean[:, None], 0.0)
        total = tl.dot(straight + tl.trans(across), centred, total, input_precision=PRODUCT)
    offsets = _offsets(rows, out_c * C_UNIT, WIDE)[:, None] + _offsets(positions, out_n * S_UNIT, WIDE)[None, :]
    result = (total / N).to(d_x.dtype.element_ty)
    tl.store(d_x + image * out_b + offsets, result, mask=(rows < C)[:, None] & (positions < N)[None, :])


def _block_of(C: int, itemsize: int) -> int:
    """The side of a tile. Where numbers are split into halves, a large tile uses each for more products."""
    return 128 if C >= 256 and itemsize == 4 else block_of(C)


def _in_flight(block: int) -> dict[str, int]:
    return {"num_warps": 8, "num_stages": 2} if block == 128 else {"num_warps": 4, "num_stages": 3}


def value_options(block: int) -> dict[str, int]:
    """Sizes of the launch of the covariance."""
    return {"BLOCK": block, "STEP": 32, "SUM_STEP": 128, **_in_flight(block)}


def vjp_options(block: int, N: int) -> dict[str, int]:
    """Sizes of the launch of the derivative."""
    width = min(MOST_WIDTH, max(16, triton.next_power_of_2(N)))
    return {"BLOCK": block, "STEP": min(32, block), "WIDTH": width, **_in_flight(block)}


def _layout(*tensors: Tensor) -> tuple[list[int], dict[str, int]]:
    """What a launch is told of the shape (B, C, N) and of the strides of tensors that share it."""
    _, C, N = tensors[0].shape
    units = [math.gcd(16, *(t.stride(dim) for t in tensors)) for dim in (1, 2)]
    n_unit = math.gcd(16, N)
    strides = [n for t in tensors for n in (t.stride(0), t.stride(1) // units[0], t.stride(2) // units[1])]
    wide = any((C - 1) * t.stride(1) + (N - 1) * t.stride(2) >= 2**31 for t in tensors)
    return [C, N // n_unit, *strides], {"C_UNIT": units[0], "S_UNIT": units[1], "N_UNIT": n_unit, "WIDE": wide}


def value(x: Tensor, precision: str) -> tuple[Tensor, Tensor]:
    """The covariance (B, C, C) of features (B, C, N) with any strides, exactly symmetric, and the means (B, C)."""
    batch, C, _ = x.shape
    cov, means = (torch.empty(shape, dtype=torch.float32, device=x.device) for shape in ((batch, C, C), (batch, C)))
    block, n_blocks, n_tiles = tiling(C, _block_of(C, x.element_size()))
    if batch:
        numbers, layout = _layout(x)
        constants = layout | value_options(block) | {"N_TILES": n_tiles, "N_BLOCKS": n_blocks}
        _value[(batch * n_tiles,)](x, cov, means, *numbers, PRODUCT=_PRODUCTS[precision], **constants)
    return cov, means


def vjp(x: Tensor, means: Tensor, grad: Tensor, precision: str) -> Tensor:
    """(G + Gᵀ)(X − mean)/N for any cotangent G (B, C, C), in the dtype and, where they are dense, the strides of x.

    The rows of X − mean sum to zero, so those of the result do: it needs no centring of its own.
    """
    batch, C, N = x.shape
    d_x, (block, n_blocks, _) = torch.empty_like(x), tiling(C, _block_of(C, x.element_size()))
    if batch:
        numbers, layout = _layout(x, d_x)
        constants = layout | vjp_options(block, N) | {"N_BLOCKS": n_blocks}
        grid = (batch * n_blocks * triton.cdiv(N, constants["WIDTH"]),)
        _vjp[grid](x, means, grad, d_x, *numbers, PRODUCT=_PRODUCTS[precision], **constants)
    return d_x
