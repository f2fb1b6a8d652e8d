"""The covariance of features (B, C, N), one launch, and its derivative, two; features are read as they lie in memory.

Features of 16 bits become float32 before the mean is subtracted, in registers: no float32 copy is made. For the tensor
cores numbers are split into float16 as those of the iteration are, each channel times the power of two that brings it
into their range. Sizes and strides travel as a quotient and a power of two that divides them, from which the compiler
knows how wide it may load.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from .program import PLANES_OF, block_of, tiling
from .tiles import split, tile_corner

MOST_WIDTH = 128  # positions of a block of the derivative: each block reads a row of tiles of the cotangent


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
def _scale(bound):
    """A power of two that brings numbers up to ``bound`` into the range of float16, and its inverse."""
    exponent = tl.maximum(bound.to(tl.int32, bitcast=True) >> 23, 15)
    scale, inverse = (268 - exponent) << 23, (exponent - 14) << 23
    return scale.to(tl.float32, bitcast=True), inverse.to(tl.float32, bitcast=True)


@triton.jit
def _mean(x, rows, C, N, stride_c, stride_n, WIDE: tl.constexpr, STEP: tl.constexpr):
    """Means of rows, of distances from the first position: a large common offset costs no digits. And bounds on the
    distances from the mean.
    """
    origin = tl.load(x + _offsets(rows, stride_c, WIDE), mask=rows < C, other=0.0).to(tl.float32)
    total, largest = tl.zeros_like(origin), tl.zeros_like(origin)
    for begin in range(0, N, STEP):
        value, inside = _load(x, rows, begin + tl.arange(0, STEP), C, N, stride_c, stride_n, WIDE)
        distance = tl.where(inside, value - origin[:, None], 0.0)
        total += tl.sum(distance, axis=1)
        largest = tl.maximum(largest, tl.max(tl.abs(distance), axis=1))
    return origin + total / N, largest + tl.abs(total / N)


@triton.jit
def _add_product(total, a, a_low, c, c_low, PLANES: tl.constexpr):
    """Adds a product of split numbers.

    Tensor cores cut off what is small against their sum, instead of rounding it. So theirs is short, small products
    come first in it, and it is added in float32.
    """
    if PLANES == 1:
        return tl.dot(a, c, total)
    part = tl.dot(a_low, c)
    part = tl.dot(a, c_low, part)
    return total + tl.dot(a, c, part)


@triton.jit
def _store(matrix, value, rows, columns, C):
    inside = (rows < C)[:, None] & (columns < C)[None, :]
    tl.store(matrix + rows[:, None] * C + columns[None, :], value, mask=inside)


@triton.jit
def _value(x, cov, rows_of, C, n_units, stride_b, c_units, s_units, C_UNIT: tl.constexpr, S_UNIT: tl.constexpr,
           N_UNIT: tl.constexpr, WIDE: tl.constexpr, PLANES: tl.constexpr, N_TILES: tl.constexpr,
           N_BLOCKS: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, SUM_STEP: tl.constexpr):  # fmt: skip
    image, tile = (tl.program_id(0) // N_TILES).to(tl.int64), tl.program_id(0) % N_TILES
    N, stride_c, stride_n = n_units * N_UNIT, c_units * C_UNIT, s_units * S_UNIT
    x += image * stride_b
    first_row, first_column, diagonal = tile_corner(tile, N_BLOCKS, BLOCK)
    rows, columns = first_row + tl.arange(0, BLOCK), first_column + tl.arange(0, BLOCK)
    row_mean, bound = _mean(x, rows, C, N, stride_c, stride_n, WIDE, SUM_STEP)
    row_scale, row_back = _scale(bound)
    column_mean, column_bound = _mean(x, columns, C, N, stride_c, stride_n, WIDE, SUM_STEP)
    column_scale, column_back = _scale(column_bound)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for begin in range(0, N, STEP):
        positions = begin + tl.arange(0, STEP)
        left, inside = _load(x, rows, positions, C, N, stride_c, stride_n, WIDE)
        left = tl.where(inside, (left - row_mean[:, None]) * row_scale[:, None], 0.0)
        right, inside = _load(x, columns, positions, C, N, stride_c, stride_n, WIDE)
        right = tl.where(inside, (right - column_mean[:, None]) * column_scale[:, None], 0.0)
        a, a_low = split(left, tl.float16)
        c, c_low = split(tl.trans(right), tl.float16)
        total = _add_product(total, a, a_low, c, c_low, PLANES)
    # On the diagonal both halves are computed and only the upper one counts, so that the result is exactly symmetric.
    value = total * row_back[:, None] * column_back[None, :] / N
    value = tl.where(rows[:, None] > columns[None, :], tl.trans(value), value)
    cov += image * C * C
    _store(cov, value, rows, columns, C)
    if diagonal:
        spots = rows_of + image * (2 * C) + rows
        tl.store(spots, row_mean, mask=rows < C)
        tl.store(spots + C, bound, mask=rows < C)
    else:
        _store(cov, tl.trans(value), columns, rows, C)


@triton.jit
def _slopes(grad, rows_of, rows, others, C):
    """A tile of G + Gᵀ for features that are scaled as :func:`_value` does."""
    straight_inside = (rows < C)[:, None] & (others < C)[None, :]
    across_inside = (others < C)[:, None] & (rows < C)[None, :]
    straight = tl.load(grad + rows[:, None] * C + others[None, :], mask=straight_inside, other=0.0)
    across = tl.load(grad + others[:, None] * C + rows[None, :], mask=across_inside, other=0.0)
    _, back = _scale(tl.load(rows_of + C + others, mask=others < C, other=0.0))
    return (straight + tl.trans(across)) * back[None, :]


@triton.jit
def _split_cotangent(grad, rows_of, planes, backs, C, PLANES: tl.constexpr, SIDE: tl.constexpr,
                     BLOCK: tl.constexpr):  # fmt: skip
    """Splits rows of that matrix into planes (B, 2, SIDE, SIDE), each times a power of two; stores its inverse."""
    image, block = (tl.program_id(0) // (SIDE // BLOCK)).to(tl.int64), tl.program_id(0) % (SIDE // BLOCK)
    rows = block * BLOCK + tl.arange(0, BLOCK)
    grad += image * C * C
    rows_of += image * (2 * C)
    planes += image * (PLANES * SIDE * SIDE)
    bound = tl.zeros((BLOCK,), dtype=tl.float32)
    for begin in range(0, SIDE, BLOCK):
        slopes = _slopes(grad, rows_of, rows, begin + tl.arange(0, BLOCK), C)
        bound = tl.maximum(bound, tl.max(tl.abs(slopes), axis=1))
    scale, back = _scale(bound)
    tl.store(backs + image * SIDE + rows, back)
    for begin in range(0, SIDE, BLOCK):
        others = begin + tl.arange(0, BLOCK)
        slopes = _slopes(grad, rows_of, rows, others, C) * scale[:, None]
        high, low = split(slopes, tl.float16)
        at = rows[:, None] * SIDE + others[None, :]
        tl.store(planes + at, high)
        if PLANES == 2:
            tl.store(planes + SIDE * SIDE + at, low)


@triton.jit
def _vjp(x, rows_of, planes, backs, d_x, C, n_units, stride_b, c_units, s_units, out_b, out_c, out_n,
         C_UNIT: tl.constexpr, S_UNIT: tl.constexpr, N_UNIT: tl.constexpr, WIDE: tl.constexpr, PLANES: tl.constexpr,
         SIDE: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr):  # fmt: skip
    N, stride_c, stride_n = n_units * N_UNIT, c_units * C_UNIT, s_units * S_UNIT
    pieces = SIDE // BLOCK * tl.cdiv(N, WIDTH)
    image, piece = (tl.program_id(0) // pieces).to(tl.int64), tl.program_id(0) % pieces
    x += image * stride_b
    rows_of += image * (2 * C)
    planes += image * (PLANES * SIDE * SIDE)
    rows = piece % (SIDE // BLOCK) * BLOCK + tl.arange(0, BLOCK)
    positions = piece // (SIDE // BLOCK) * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros((BLOCK, WIDTH), dtype=tl.float32)
    for begin in range(0, C, STEP):
        others = begin + tl.arange(0, STEP)
        at = rows[:, None] * SIDE + others[None, :]
        slopes = tl.load(planes + at)
        slopes_low = slopes
        if PLANES == 2:
            slopes_low = tl.load(planes + SIDE * SIDE + at)
        value, inside = _load(x, others, positions, C, N, stride_c, stride_n, WIDE)
        mean = tl.load(rows_of + others, mask=others < C, other=0.0)
        scale, _ = _scale(tl.load(rows_of + C + others, mask=others < C, other=0.0))
        centred = tl.where(inside, (value - mean[:, None]) * scale[:, None], 0.0)
        high, low = split(centred, tl.float16)
        total = _add_product(total, slopes, slopes_low, high, low, PLANES)
    back = tl.load(backs + image * SIDE + rows)
    offsets = _offsets(rows, out_c * C_UNIT, WIDE)[:, None] + _offsets(positions, out_n * S_UNIT, WIDE)[None, :]
    result = (total * back[:, None] / N).to(d_x.dtype.element_ty)
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
    """The covariance (B, C, C) of features (B, C, N) with any strides, exactly symmetric; and of each channel the mean
    and a bound on the distances from it (B, 2, C).
    """
    batch, C, _ = x.shape
    cov, rows = (torch.empty(shape, dtype=torch.float32, device=x.device) for shape in ((batch, C, C), (batch, 2, C)))
    block, n_blocks, n_tiles = tiling(C, _block_of(C, x.element_size()))
    if batch:
        numbers, layout = _layout(x)
        constants = layout | value_options(block) | {"N_TILES": n_tiles, "N_BLOCKS": n_blocks}
        _value[(batch * n_tiles,)](x, cov, rows, *numbers, PLANES=PLANES_OF[precision], **constants)
    return cov, rows


def vjp(x: Tensor, rows: Tensor, grad: Tensor, precision: str) -> Tensor:
    """(G + Gᵀ)(X − mean)/N for any cotangent G (B, C, C), in the dtype and, where they are dense, the strides of x;
    ``rows`` is what :func:`value` found.

    The rows of X − mean sum to zero, so those of the result do: it needs no centring of its own.
    """
    batch, C, N = x.shape
    d_x, (block, n_blocks, _) = torch.empty_like(x), tiling(C, _block_of(C, x.element_size()))
    if batch:
        side, n_planes = n_blocks * block, PLANES_OF[precision]
        planes = torch.empty((batch, n_planes, side, side), dtype=torch.float16, device=x.device)
        backs = torch.empty((batch, side), dtype=torch.float32, device=x.device)
        part = block_of(C)
        _split_cotangent[(batch * (side // part),)](
            grad, rows, planes, backs, C, PLANES=n_planes, SIDE=side, BLOCK=part
        )
        numbers, layout = _layout(x, d_x)
        constants = layout | vjp_options(block, N) | {"SIDE": side, "PLANES": n_planes}
        pieces = (batch * n_blocks * triton.cdiv(N, constants["WIDTH"]),)
        _vjp[pieces](x, rows, planes, backs, d_x, *numbers, **constants)
    return d_x
