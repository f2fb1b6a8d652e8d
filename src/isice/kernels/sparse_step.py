"""One gradient step of iSICE on a tile, and its backward pass: the twin of ``ops/_sparse_step.py``."""

import triton
import triton.language as tl


@triton.jit
def sparse_step(s, gradient, rate, lam):
    """The next S, and which parts are alive: 1 for the positive part, 2 for the negative one, 3 for both."""
    plus = tl.maximum(tl.maximum(s, 0.0) + rate * (gradient - lam), 0.0)
    minus = tl.maximum(tl.maximum(-s, 0.0) - rate * (gradient + lam), 0.0)
    alive = tl.where(plus > 0, 1, 0) + tl.where(minus > 0, 2, 0)
    return plus - minus, alive.to(tl.int8)


@triton.jit
def part_cotangents(alive, grad):
    """The cotangents of the new S⁺ and S⁻ for the cotangent of the next S."""
    alive = alive.to(tl.int32)
    return tl.where((alive & 1) != 0, grad, 0.0), tl.where((alive & 2) != 0, grad, 0.0)
