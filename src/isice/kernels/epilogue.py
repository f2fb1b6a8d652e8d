"""Per-tile prologue and epilogue of the Newton–Schulz kernel.

The prologue divides by the trace and stores T, and for derivatives the direction, in the
workspace. The epilogue scales the result back and takes a projected gradient step of iSICE, or
computes the backward pass of both.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from .gemm import DERIVATIVE_SLOT
from .layout import store_planes
from .schedule import T

_T: tl.constexpr = tl.constexpr(T)
# As in ops: the trace of a matrix without variance is at most this.
_NO_VARIANCE: tl.constexpr = tl.constexpr(1e-14)
# A lower bound on norms that are divided by: its inverse still fits into float32, with the scales.
_MIN_NORM: tl.constexpr = tl.constexpr(1e-30)
# Directions enter the iteration with this norm: their growth fits the range of float16,
# and so do small entries.
DIRECTION_NORM: tl.constexpr = tl.constexpr(8.0)


class Trace(NamedTuple):
    """Trace of a matrix plus shift·I."""

    value: Any  # one without variance
    has_variance: Any  # 1.0 or 0.0


class Scalars(NamedTuple):
    """Per-image scalars of a launch."""

    rate: Any  # βη of the step
    lam: Any  # λ of the step
    direction_norm: Any  # bound on the norm of the direction of the derivative
    cotangent_norm: Any  # bound on the norm of the given cotangent


class TilePointers(NamedTuple):
    """One tile of each tiled matrix of a launch."""

    source: Any
    cotangent: Any
    out: Any
    sigma: Any
    positive_mask: Any
    d_sigma: Any


class Lanes(NamedTuple):
    """Index vectors of a tile, in the register layout of the calling kernel."""

    rows: Any
    columns: Any


@triton.jit
def tile_pointers(operands, step, offset):
    """Return pointers to the tile at ``offset`` of every tiled matrix."""
    return TilePointers(
        operands.source + offset, operands.cotangent + offset, operands.out + offset,
        step.sigma + offset, step.positive_mask + offset, step.d_sigma + offset,
    )  # fmt: skip


@triton.jit
def trace_of(diagonal, D, shift):
    """Compute the trace of a matrix plus ``shift``·I."""
    total = tl.sum(diagonal) + D * shift
    has_variance = tl.where(total > _NO_VARIANCE, 1.0, 0.0)
    return Trace(tl.where(has_variance > 0, total, 1.0), has_variance)


@triton.jit
def trace_factor(trace, POWER: tl.constexpr):
    """Return the power of the trace by which the result is multiplied."""
    factor = 1.0 / trace.value
    if POWER == 0.5:
        factor = tl.sqrt(trace.value)
    elif POWER == -0.5:
        factor = 1.0 / tl.sqrt(trace.value)
    return factor


@triton.jit
def load_scalars(step, norms, image, CONFIG: tl.constexpr):
    """Per-image scalars. Kernels reload them after the iteration to lower register pressure."""
    rate, lam, direction_norm, cotangent_norm = 0.0, 0.0, 1.0, 1.0
    if CONFIG.STEP:
        rate, lam = step.beta * tl.load(step.eta + image), tl.load(step.lam + image)
    if CONFIG.DERIVATIVE:
        cotangent_norm = tl.maximum(tl.load(norms + image), _MIN_NORM)
        direction_norm = cotangent_norm
        if CONFIG.STEP:
            direction_norm = tl.maximum(2 * tl.abs(rate) * cotangent_norm, _MIN_NORM)
    return Scalars(rate, lam, direction_norm, cotangent_norm)


@triton.jit
def _projected_step(s, gradient, rate, lam):
    """Return the next S and a mask: 1 where S⁺ > 0, 2 where S⁻ > 0, 3 for both."""
    plus = tl.maximum(tl.maximum(s, 0.0) + rate * (gradient - lam), 0.0)
    minus = tl.maximum(tl.maximum(-s, 0.0) - rate * (gradient + lam), 0.0)
    positive_mask = tl.where(plus > 0, 1, 0) + tl.where(minus > 0, 2, 0)
    return plus - minus, positive_mask.to(tl.int8)


@triton.jit
def _part_cotangents(positive_mask, grad):
    """Return the cotangents of the new S⁺ and S⁻ for the cotangent of the next S."""
    mask = positive_mask.to(tl.int32)
    return tl.where((mask & 1) != 0, grad, 0.0), tl.where((mask & 2) != 0, grad, 0.0)


@triton.jit
def _normalized(tile, diagonal, trace, problem):
    """Return a tile of T: the shifted matrix divided by its trace, or I/D without variance."""
    on_diagonal = problem.shift / trace.value + (1.0 - trace.has_variance) / problem.D
    return tile * (1.0 / trace.value) + tl.where(diagonal, on_diagonal, 0.0)


@triton.jit
def _direction(tile, at, rate, STEP: tl.constexpr):
    """Entries of the symmetric cotangent of the result of the iteration."""
    grad = tl.load(tile.cotangent + at)
    if STEP:
        d_plus, d_minus = _part_cotangents(tl.load(tile.positive_mask + at), grad)
        grad = rate * (d_plus + d_minus)
    return grad


@triton.jit
def prologue(slots, tile, rate, trace, scale, d_scale, corner, lanes, mirror, problem, CONFIG: tl.constexpr):
    """Store a tile of T times ``scale``, and of the direction times ``d_scale``."""
    at = lanes.rows[:, None] * CONFIG.BLOCK + lanes.columns[None, :]
    rows, columns = corner.row + lanes.rows, corner.column + lanes.columns
    diagonal = (rows[:, None] == columns[None, :]) & (rows < problem.D)[:, None]
    t = _normalized(tl.load(tile.source + at), diagonal, trace, problem)
    store_planes(slots, _T, t * scale, rows, columns, mirror, CONFIG.SIDE, CONFIG.PLANES)
    if CONFIG.DERIVATIVE:
        dt = d_scale * _direction(tile, at, rate, CONFIG.STEP)
        store_planes(slots, _T + DERIVATIVE_SLOT, dt, rows, columns, mirror, CONFIG.SIDE, CONFIG.PLANES)


@triton.jit
def _store_value(value, tile, at, scalars, inside, STEP: tl.constexpr):
    """Store a strip of the result, or of the next S with ``value`` as ∇₁."""
    if STEP:
        gradient = value - tl.load(tile.sigma + at)
        value, mask = _projected_step(tl.load(tile.source + at), gradient, scalars.rate, scalars.lam)
        tl.store(tile.positive_mask + at, mask)
    tl.store(tile.out + at, tl.where(inside, value, 0.0))


@triton.jit
def _store_derivative(value, slope, tile, at, diagonal, scalars, trace, factor, problem, CONFIG: tl.constexpr):
    """Store a strip of the cotangent of the source.

    Returns what is summed for the trace, for the norm relative to that of the given cotangent, and
    for the cotangents of rate and λ. All are zero beyond D, where the cotangent is.
    """
    s = tl.load(tile.source + at)
    direction = _direction(tile, at, scalars.rate, CONFIG.STEP)
    t = _normalized(s, diagonal, trace, problem)
    along = CONFIG.POWER * direction * value - slope * t
    d_rate, d_lam = along, along
    slope *= factor / trace.value
    if CONFIG.STEP:
        d_plus, d_minus = _part_cotangents(tl.load(tile.positive_mask + at), tl.load(tile.cotangent + at))
        slope += tl.where(s > 0, d_plus, 0.0) + tl.where(s < 0, d_minus, 0.0)
        if CONFIG.MOMENTS:
            gradient = factor * value - tl.load(tile.sigma + at)
            d_rate = d_plus * (gradient - scalars.lam) + d_minus * (gradient + scalars.lam)
            d_lam = scalars.rate * (d_minus - d_plus)
        tl.store(tile.d_sigma + at, tl.load(tile.d_sigma + at) - direction)
    tl.store(tile.out + at, slope)
    relative = slope * (1.0 / scalars.cotangent_norm)
    return along, relative * relative, d_rate, d_lam


@triton.jit
def epilogue(result, tile, scalars, trace, derivative_scale, corner, lanes, zeros, problem, CONFIG: tl.constexpr):
    """Store a finished tile, strip by strip.

    Args:
        result: The tile in the workspace, and behind it that of the derivative.
        tile: The same tile of the tiled matrices.
        derivative_scale: Scale of the derivative in ``result`` (norm DIRECTION_NORM).
        lanes, zeros: Index vectors and zeros of a strip.

    Returns:
        The sums of what :func:`_store_derivative` returns; zeros without derivative.
    """
    BLOCK: tl.constexpr = CONFIG.BLOCK
    factor = trace_factor(trace, CONFIG.POWER)
    unscale = scalars.direction_norm / (DIRECTION_NORM * derivative_scale)
    along, square, d_rate, d_lam = zeros, zeros, zeros, zeros
    in_tile, columns = lanes.rows[:, None] * BLOCK + lanes.columns[None, :], corner.column + lanes.columns
    for strip in range(0, BLOCK, CONFIG.STRIP):
        at, rows = in_tile + strip * BLOCK, corner.row + strip + lanes.rows
        inside = (rows < problem.D)[:, None] & (columns < problem.D)[None, :]
        value = tl.load(result + at)
        if CONFIG.DERIVATIVE:
            slope = tl.load(result + BLOCK * BLOCK + at) * unscale
            diagonal = (rows[:, None] == columns[None, :]) & inside
            sums = _store_derivative(value, slope, tile, at, diagonal, scalars, trace, factor, problem, CONFIG)
            along, square = along + sums[0], square + sums[1]
            if CONFIG.MOMENTS:
                d_rate, d_lam = d_rate + sums[2], d_lam + sums[3]
        else:
            _store_value(factor * value, tile, at, scalars, inside, CONFIG.STEP)
    if CONFIG.MOMENTS:
        return tl.sum(along), tl.sum(square), tl.sum(d_rate), tl.sum(d_lam)
    return tl.sum(along), tl.sum(square), 0.0, 0.0
