"""A tile before the first product of an iteration and after the last: T and the direction, the step, the cotangents."""

import triton
import triton.language as tl

from .program import T
from .sparse_step import part_cotangents, sparse_step
from .stage import D_SLOT
from .tiles import store_value

_T: tl.constexpr = tl.constexpr(T)
# Smaller norms count as this: their inverse still fits into float32, with the scales.
_SMALLEST_NORM: tl.constexpr = tl.constexpr(1e-30)


@triton.jit
def power_of_trace(trace, POWER: tl.constexpr):
    """The power of the trace that the result is multiplied by."""
    back = 1.0 / trace
    if POWER == 0.5:
        back = tl.sqrt(trace)
    elif POWER == -0.5:
        back = 1.0 / tl.sqrt(trace)
    return back


@triton.jit
def numbers(rates, lams, norms, image, beta, STEP: tl.constexpr, DERIVATIVE: tl.constexpr):
    """Rate and λ of a step, bounds on the norms of the direction and of the cotangent. Loaded twice: they need no
    registers meanwhile.
    """
    rate, lam, norm, given = 0.0, 0.0, 1.0, 1.0
    if STEP:
        rate, lam = beta * tl.load(rates + image), tl.load(lams + image)
    if DERIVATIVE:
        given = tl.maximum(tl.load(norms + image), _SMALLEST_NORM)
        norm = given
        if STEP:
            norm = tl.maximum(2 * tl.abs(rate) * given, _SMALLEST_NORM)
    return rate, lam, norm, given


@triton.jit
def add_to_diagonal(tile, value, n_rows, BLOCK: tl.constexpr):
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
def prepare(
    workspace, matrix, grad, alive_parts, rate, trace, alive, scale, d_scale,
    first_row, first_column, lines, columns, mirror, D, shift,
    DERIVATIVE: tl.constexpr, STEP: tl.constexpr, SIDE: tl.constexpr, BLOCK: tl.constexpr, PLANES: tl.constexpr,
):  # fmt: skip
    """Stores a tile of T, and of the direction.

    Here and below, lines and columns of a tile are given: the languages of both kernels make them in different ways.
    """
    at = lines[:, None] * BLOCK + columns[None, :]
    rows, columns = first_row + lines, first_column + columns
    diagonal = (rows[:, None] == columns[None, :]) & (rows < D)[:, None]
    t = _trace_one(tl.load(matrix + at), diagonal, D, shift, trace, alive)
    store_value(workspace, _T, t * scale, rows, columns, mirror, SIDE, PLANES)
    if DERIVATIVE:
        dt = d_scale * _direction(grad, alive_parts, at, rate, STEP)
        store_value(workspace, _T + D_SLOT, dt, rows, columns, mirror, SIDE, PLANES)


@triton.jit
def _leave_value(value, out, matrix, sigma, alive_parts, at, rate, lam, inside, STEP: tl.constexpr):
    """Stores a strip of the result, or of the next S with ``value`` as ∇₁."""
    if STEP:
        value, parts = sparse_step(tl.load(matrix + at), value - tl.load(sigma + at), rate, lam)
        tl.store(alive_parts + at, parts)
    tl.store(out + at, tl.where(inside, value, 0.0))


@triton.jit
def _leave_slope(
    value, slope, out, matrix, grad, sigma, alive_parts, d_sigma, at, diagonal, rate, lam, trace, alive, back, given,
    D, shift,
    POWER: tl.constexpr, STEP: tl.constexpr, MOMENTS: tl.constexpr,
):  # fmt: skip
    """Stores a strip of the cotangent of the source; returns what is summed for the trace, for the norm (relative to
    ``given``), and for the cotangents of rate and λ. Beyond D the cotangent is zero, and with it all of that.
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
    relative = slope * (1.0 / given)
    return along, relative * relative, d_rate, d_lam


@triton.jit
def leave(
    result, out, matrix, grad, sigma, alive_parts, d_sigma, rate, lam, trace, alive, back, from_norm, given,
    first_row, first_column, zeros, lines, columns, D, shift,
    POWER: tl.constexpr, DERIVATIVE: tl.constexpr, STEP: tl.constexpr, MOMENTS: tl.constexpr, BLOCK: tl.constexpr,
    STRIP: tl.constexpr,
):  # fmt: skip
    """Stores a finished tile, strip by strip; returns the sums over :func:`_leave_slope`. Zeros, too, are given."""
    along, square, d_rate, d_lam = zeros, zeros, zeros, zeros
    at_first, columns = lines[:, None] * BLOCK + columns[None, :], first_column + columns
    for strip in range(0, BLOCK, STRIP):
        at, rows = at_first + strip * BLOCK, first_row + strip + lines
        inside = (rows < D)[:, None] & (columns < D)[None, :]
        value = tl.load(result + at)
        if DERIVATIVE:
            slope = tl.load(result + BLOCK * BLOCK + at) * from_norm
            sums = _leave_slope(
                value, slope, out, matrix, grad, sigma, alive_parts, d_sigma, at,
                (rows[:, None] == columns[None, :]) & inside, rate, lam, trace, alive, back, given, D, shift,
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
