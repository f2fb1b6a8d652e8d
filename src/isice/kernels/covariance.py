"""Launcher and kernels of the covariance of features (B, C, N): one launch, and two backward.

16-bit features become float32 in registers, before the mean is subtracted: no float32 copy is
made. For the tensor cores, numbers are split into float16 planes as in the iteration, each
channel times a power of two that brings it into range. Sizes and strides are passed as a power
of two that divides them (a compile-time constant) and the quotient, so that the compiler knows
how wide its loads may be.
"""

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .layout import split, tile_corner, tile_side, tiling
from .schedule import PLANES

_MAX_WIDTH = 128  # positions of a block of the backward pass: each block reads a row of tiles of the cotangent


class Shape(NamedTuple):
    """Shape of features (B, C, N)."""

    C: int
    n_units: int  # N / Units.N


class Strides(NamedTuple):
    """Strides of features (B, C, N)."""

    batch: int
    c_units: int  # of channels, divided by Units.C
    s_units: int  # of positions, divided by Units.S


class Units(NamedTuple):
    """Compile-time powers of two that divide strides and sizes."""

    C: int  # strides of channels
    S: int  # strides of positions
    N: int  # positions
    WIDE: bool  # whether offsets need 64 bits


class Tiles(NamedTuple):
    """Compile-time tile sizes of the covariance."""

    BLOCK: int
    N_BLOCKS: int
    N_TILES: int
    STEP: int  # positions of a k-slice
    SUM_STEP: int  # positions summed at once for the mean
    PLANES: int


class VjpTiles(NamedTuple):
    """Compile-time tile sizes of the backward pass."""

    BLOCK: int
    SIDE: int  # rows of the split cotangent
    STEP: int  # channels of a k-slice
    WIDTH: int  # positions of a tile
    PLANES: int


@triton.jit
def _offsets(index, stride, WIDE: tl.constexpr):
    return (index.to(tl.int64) if WIDE else index) * stride


@triton.jit
def _load(x, rows, positions, shape, strides, UNITS: tl.constexpr):
    """Features in float32, zero beyond the last; and which of them exist."""
    inside = (rows < shape.C)[:, None] & (positions < shape.n_units * UNITS.N)[None, :]
    of_rows = _offsets(rows, strides.c_units * UNITS.C, UNITS.WIDE)
    offsets = of_rows[:, None] + _offsets(positions, strides.s_units * UNITS.S, UNITS.WIDE)[None, :]
    return tl.load(x + offsets, mask=inside, other=0.0).to(tl.float32), inside


@triton.jit
def _scale(bound):
    """Return the power of two that scales ``bound`` into the range of float16, and its inverse."""
    exponent = tl.maximum(bound.to(tl.int32, bitcast=True) >> 23, 15)
    scale, inverse = (268 - exponent) << 23, (exponent - 14) << 23
    return scale.to(tl.float32, bitcast=True), inverse.to(tl.float32, bitcast=True)


@triton.jit
def _mean(x, rows, shape, strides, UNITS: tl.constexpr, STEP: tl.constexpr):
    """Means of rows and bounds on the distances from them.

    Distances from the first position are averaged, so that a large common offset costs no digits.
    """
    N = shape.n_units * UNITS.N
    at = x + _offsets(rows, strides.c_units * UNITS.C, UNITS.WIDE)
    origin = tl.load(at, mask=rows < shape.C, other=0.0).to(tl.float32)
    total, largest = tl.zeros_like(origin), tl.zeros_like(origin)
    for begin in range(0, N, STEP):
        value, inside = _load(x, rows, begin + tl.arange(0, STEP), shape, strides, UNITS)
        distance = tl.where(inside, value - origin[:, None], 0.0)
        total += tl.sum(distance, axis=1)
        largest = tl.maximum(largest, tl.max(tl.abs(distance), axis=1))
    return origin + total / N, largest + tl.abs(total / N)


@triton.jit
def _add_product(total, a, a_low, c, c_low, PLANES: tl.constexpr):
    """Add a product of split numbers.

    Tensor cores truncate addends that are small against the accumulator. So each accumulation is
    short and begins with the low-order products, and its result is added in float32.
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
def _covariance(x, cov, channels, shape, strides, UNITS: tl.constexpr, TILES: tl.constexpr):
    BLOCK: tl.constexpr = TILES.BLOCK
    image, tile = (tl.program_id(0) // TILES.N_TILES).to(tl.int64), tl.program_id(0) % TILES.N_TILES
    C, N = shape.C, shape.n_units * UNITS.N
    x += image * strides.batch
    corner = tile_corner(tile, TILES.N_BLOCKS, BLOCK)
    rows, columns = corner.row + tl.arange(0, BLOCK), corner.column + tl.arange(0, BLOCK)
    row_mean, bound = _mean(x, rows, shape, strides, UNITS, TILES.SUM_STEP)
    row_scale, row_back = _scale(bound)
    column_mean, column_bound = _mean(x, columns, shape, strides, UNITS, TILES.SUM_STEP)
    column_scale, column_back = _scale(column_bound)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for begin in range(0, N, TILES.STEP):
        positions = begin + tl.arange(0, TILES.STEP)
        left, inside = _load(x, rows, positions, shape, strides, UNITS)
        left = tl.where(inside, (left - row_mean[:, None]) * row_scale[:, None], 0.0)
        right, inside = _load(x, columns, positions, shape, strides, UNITS)
        right = tl.where(inside, (right - column_mean[:, None]) * column_scale[:, None], 0.0)
        a, a_low = split(left, tl.float16)
        c, c_low = split(tl.trans(right), tl.float16)
        total = _add_product(total, a, a_low, c, c_low, TILES.PLANES)
    # Diagonal tiles keep their upper half only, so that the result is exactly symmetric.
    value = total * row_back[:, None] * column_back[None, :] / N
    value = tl.where(rows[:, None] > columns[None, :], tl.trans(value), value)
    cov += image * C * C
    _store(cov, value, rows, columns, C)
    if corner.on_diagonal:
        of_rows = channels + image * (2 * C) + rows
        tl.store(of_rows, row_mean, mask=rows < C)
        tl.store(of_rows + C, bound, mask=rows < C)
    else:
        _store(cov, tl.trans(value), columns, rows, C)


@triton.jit
def _symmetric_cotangent(grad, channels, rows, others, C):
    """Load a tile of G + Gᵀ for features that are scaled as in :func:`_covariance`."""
    straight_inside = (rows < C)[:, None] & (others < C)[None, :]
    across_inside = (others < C)[:, None] & (rows < C)[None, :]
    straight = tl.load(grad + rows[:, None] * C + others[None, :], mask=straight_inside, other=0.0)
    across = tl.load(grad + others[:, None] * C + rows[None, :], mask=across_inside, other=0.0)
    _, back = _scale(tl.load(channels + C + others, mask=others < C, other=0.0))
    return (straight + tl.trans(across)) * back[None, :]


@triton.jit
def _split_cotangent(grad, channels, planes, backs, C, PLANES: tl.constexpr, SIDE: tl.constexpr, BLOCK: tl.constexpr):
    """Split that matrix into planes (B, PLANES, SIDE, SIDE), its rows scaled; store 1/scale."""
    image, block = (tl.program_id(0) // (SIDE // BLOCK)).to(tl.int64), tl.program_id(0) % (SIDE // BLOCK)
    rows = block * BLOCK + tl.arange(0, BLOCK)
    grad += image * C * C
    channels += image * (2 * C)
    planes += image * (PLANES * SIDE * SIDE)
    bound = tl.zeros((BLOCK,), dtype=tl.float32)
    for begin in range(0, SIDE, BLOCK):
        value = _symmetric_cotangent(grad, channels, rows, begin + tl.arange(0, BLOCK), C)
        bound = tl.maximum(bound, tl.max(tl.abs(value), axis=1))
    scale, back = _scale(bound)
    tl.store(backs + image * SIDE + rows, back)
    for begin in range(0, SIDE, BLOCK):
        others = begin + tl.arange(0, BLOCK)
        value = _symmetric_cotangent(grad, channels, rows, others, C) * scale[:, None]
        high, low = split(value, tl.float16)
        at = rows[:, None] * SIDE + others[None, :]
        tl.store(planes + at, high)
        if PLANES == 2:
            tl.store(planes + SIDE * SIDE + at, low)


@triton.jit
def _covariance_vjp(
    x, channels, planes, backs, d_x, shape, strides, out_strides, UNITS: tl.constexpr, TILES: tl.constexpr
):
    BLOCK: tl.constexpr = TILES.BLOCK
    WIDTH: tl.constexpr = TILES.WIDTH
    SIDE: tl.constexpr = TILES.SIDE
    C, N = shape.C, shape.n_units * UNITS.N
    pieces = SIDE // BLOCK * tl.cdiv(N, WIDTH)
    image, piece = (tl.program_id(0) // pieces).to(tl.int64), tl.program_id(0) % pieces
    x += image * strides.batch
    channels += image * (2 * C)
    planes += image * (TILES.PLANES * SIDE * SIDE)
    rows = piece % (SIDE // BLOCK) * BLOCK + tl.arange(0, BLOCK)
    positions = piece // (SIDE // BLOCK) * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros((BLOCK, WIDTH), dtype=tl.float32)
    for begin in range(0, C, TILES.STEP):
        others = begin + tl.arange(0, TILES.STEP)
        at = rows[:, None] * SIDE + others[None, :]
        grad = tl.load(planes + at)
        grad_low = grad
        if TILES.PLANES == 2:
            grad_low = tl.load(planes + SIDE * SIDE + at)
        value, inside = _load(x, others, positions, shape, strides, UNITS)
        mean = tl.load(channels + others, mask=others < C, other=0.0)
        scale, _ = _scale(tl.load(channels + C + others, mask=others < C, other=0.0))
        centred = tl.where(inside, (value - mean[:, None]) * scale[:, None], 0.0)
        high, low = split(centred, tl.float16)
        total = _add_product(total, grad, grad_low, high, low, TILES.PLANES)
    back = tl.load(backs + image * SIDE + rows)
    of_rows = _offsets(rows, out_strides.c_units * UNITS.C, UNITS.WIDE)
    offsets = of_rows[:, None] + _offsets(positions, out_strides.s_units * UNITS.S, UNITS.WIDE)[None, :]
    result = (total * back[:, None] / N).to(d_x.dtype.element_ty)
    tl.store(d_x + image * out_strides.batch + offsets, result, mask=(rows < C)[:, None] & (positions < N)[None, :])


def _block(C: int, itemsize: int) -> int:
    """Return the side of a tile; in float32, large tiles reuse each split number more often."""
    return 128 if C >= 256 and itemsize == 4 else tile_side(C)


def _pipeline(block: int) -> dict[str, int]:
    return {"num_warps": 8, "num_stages": 2} if block == 128 else {"num_warps": 4, "num_stages": 3}


def _layout(*tensors: Tensor) -> tuple[Shape, list[Strides], Units]:
    """Return the shape (B, C, N) of tensors, their strides, and the units of both."""
    _, C, N = tensors[0].shape
    c_unit, s_unit = (math.gcd(16, *(t.stride(dim) for t in tensors)) for dim in (1, 2))
    n_unit = math.gcd(16, N)
    wide = any((C - 1) * t.stride(1) + (N - 1) * t.stride(2) >= 2**31 for t in tensors)
    strides = [Strides(t.stride(0), t.stride(1) // c_unit, t.stride(2) // s_unit) for t in tensors]
    return Shape(C, N // n_unit), strides, Units(c_unit, s_unit, n_unit, wide)


def covariance(x: Tensor, precision: str) -> tuple[Tensor, Tensor]:
    """Return the covariance (B, C, C) of features (B, C, N) with any strides, exactly symmetric.

    Also return, for each channel, the mean and a bound on the distances from it (B, 2, C).
    """
    batch, C, _ = x.shape
    cov = torch.empty((batch, C, C), dtype=torch.float32, device=x.device)
    channels = torch.empty((batch, 2, C), dtype=torch.float32, device=x.device)
    sizes = tiling(C, _block(C, x.element_size()))
    if batch:
        shape, (strides,), units = _layout(x)
        tiles = Tiles(*sizes, STEP=32, SUM_STEP=128, PLANES=PLANES[precision])
        grid = (batch * sizes.N_TILES,)
        _covariance[grid](x, cov, channels, shape, strides, UNITS=units, TILES=tiles, **_pipeline(sizes.BLOCK))
    return cov, channels


def covariance_vjp(x: Tensor, channels: Tensor, grad: Tensor, precision: str) -> Tensor:
    """Return (G + Gᵀ)(X − mean)/N for any cotangent G (B, C, C).

    The result has the dtype of x and, where they are dense, its strides; ``channels`` is what
    :func:`covariance` returned. The rows of X − mean sum to zero, and so do those of the
    result, which needs no centring.
    """
    batch, C, N = x.shape
    d_x, (block, n_blocks, _) = torch.empty_like(x), tiling(C, _block(C, x.element_size()))
    if batch:
        side, n_planes, part = n_blocks * block, PLANES[precision], tile_side(C)
        planes = torch.empty((batch, n_planes, side, side), dtype=torch.float16, device=x.device)
        backs = torch.empty((batch, side), dtype=torch.float32, device=x.device)
        grid = (batch * (side // part),)
        _split_cotangent[grid](grad, channels, planes, backs, C, PLANES=n_planes, SIDE=side, BLOCK=part)
        shape, (strides, out_strides), units = _layout(x, d_x)
        width = min(_MAX_WIDTH, max(16, triton.next_power_of_2(N)))
        tiles = VjpTiles(block, side, min(32, block), width, n_planes)
        _covariance_vjp[(batch * n_blocks * triton.cdiv(N, width),)](
            x, channels, planes, backs, d_x, shape, strides, out_strides, UNITS=units, TILES=tiles, **_pipeline(block)
        )
    return d_x
