"""Schedule of the Newton–Schulz iteration: slots, weights and scales of each stage's product.

With P = ½(3I − T) a step is T ← TP². The results are the products of all P² (inverse), of all P
(inverse root), and T times the latter (root). Two steps together take five products instead of six:
with U = T(T − 4.5I) + 3.375I, their two factors P multiply to Z = (U² − 8.625T + 24.609375I)/16,
which takes two products; then T ← TZ².

U, Z, Z² and P² are close to a multiple of the identity. Tensor cores truncate addends that are
small against the accumulator, so the remainder would lose accuracy next to that multiple. Their
slots therefore hold X′ = X − xI, where x is the value of the same polynomial at the mean eigenvalue
τ of T. Slots of T, and of the result after its first factor, hold the whole matrix. With l and c
the omitted multiples, a product is LC = L′C′ + cL′ + lC′ + lcI. A stage computes ``out ← αLC + βL +
δK + γI`` of the stored matrices, with K in a third slot; the same row gives its derivative.

Slots hold a matrix in float16, times a power of two that keeps it in range. All matrices are
polynomials of T, so they commute and products are symmetric: half of a product is computed and
mirrored. Z must not be computed at lower precision, because it would no longer commute with T.
"""

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor

T, R, Q = 0, 2, 4  # T and R are double-buffered; Q holds U, then Z²
SLOTS = 5  # followed by as many slots for the derivatives
# float16 has 5 exponent bits. Entries stay 64 times below its largest number, so that a matrix
# that is not positive semi-definite still fits. After more than MAX_STEPS, small derivatives
# would have too few bits.
_MAX_ENTRY, MAX_STEPS = 2.0**10, 12
_GROWTH = {"inverse": 2.25, "inverse_sqrt": 1.5, "sqrt": 1.0}  # largest growth of the result in a step
PLANES = {"accurate": 2, "fast": 1}  # float16 planes of a number by precision: 22 or 11 significant bits


class Stage(NamedTuple):
    """αL(C + cI) + δK + γI, in terms of the matrices themselves."""

    left: int
    right: int
    out: int
    alpha: float = 1.0
    c: float = 0.0
    gamma: float = 0.0
    bound: float = 1.0  # on the entries of the slot
    wait: bool = True  # whether it reads what the stage before it stored
    delta: float = 0.0
    term: int = -1  # the slot of K
    whole: bool = False  # whether the slot holds X instead of X − xI


class Schedule(NamedTuple):
    """All stages as tables; the result of the last one leaves the workspace."""

    stages: Tensor  # (stages, 6) int32: left, right, out; the slot of K or -1; whether the next stage waits; zero
    weights: Tensor  # (stages, 4) float32: α, β, δ, γ
    n_stages: int
    scale: float  # of the first T
    derivative_scale: float  # of every derivative, relative to its matrix


def _two_steps(i: int, kind: str, result: int | None, steps_left: int) -> list[Stage]:
    """Return the stages of the ``i``-th two steps, which take slot ``result`` to R + i % 2.

    Z is in the slot of the next T, or in that of the first factor of an inverse root.
    """
    t, new_t, new_r = T + i % 2, T + (i + 1) % 2, R + i % 2
    root, first = kind != "inverse", result is None
    z, square = new_r if first and root else new_t, new_r if first and not root else Q
    found = [
        Stage(t, t, Q, c=-4.5, gamma=3.375, bound=3.5),
        Stage(Q, Q, z, 1 / 16, gamma=24.609375 / 16, bound=2.25, delta=-8.625 / 16, term=t),
    ]
    if steps_left or not root:
        found.append(Stage(z, z, square, bound=2.25**2))
    if result is not None:
        factor = z if root else square
        bound, wait = _GROWTH[kind] ** (2 * i + 2), not (root and steps_left)
        found.append(Stage(result, factor, new_r, bound=bound, wait=wait, whole=True))
    if steps_left:
        found.append(Stage(t, square, new_t, wait=root or first, whole=True))
    return found


def _one_step(i: int, kind: str, result: int | None) -> list[Stage]:
    t = T + i % 2
    if kind != "inverse":
        return [Stage(t if result is None else result, t, R + i % 2, -0.5, c=-3.0)]
    square = Stage(t, t, Q, 0.25, c=-6.0, gamma=2.25, bound=2.25)
    return [square] if result is None else [square, Stage(result, Q, R + i % 2)]


def stages(n_iter: int, kind: str) -> list[Stage]:
    """Return the stages in exact arithmetic; an odd number of steps ends with a single one."""
    found: list[Stage] = []
    result = T if kind == "sqrt" else None
    for i in range(n_iter // 2):
        found += _two_steps(i, kind, result, n_iter - 2 * i - 2)
        result = R + i % 2
    if n_iter % 2:
        found += _one_step(n_iter // 2, kind, result)
    return found


def _scale_of(bound: float) -> float:
    return 2.0 ** math.floor(math.log2(_MAX_ENTRY / bound))


def _rows(plan: list[Stage], tau: float) -> list[tuple[list[int], list[float]]]:
    """Slots and weights of each stage in terms of what slots hold: X − xI times a scale.

    The result of the last stage is whole and has scale one.
    """
    # For each slot: the polynomial at τ, the multiple x of I that is left out, and the scale.
    path, numbers, scales = {T: tau, -1: 0.0}, {T: 0.0, -1: 0.0}, {T: _scale_of(1), -1: 1.0}
    found = []
    for stage, following in zip(plan, plan[1:] + plan[:1], strict=True):
        left, right, out, alpha, c, gamma, bound, _, delta, term, whole = stage
        on_path, constant = (
            alpha * values[left] * (values[right] + c) + delta * values[term] + gamma for values in (path, numbers)
        )
        of_left, of_right = alpha * (numbers[right] + c), alpha * numbers[left]
        if left == right:
            of_left += of_right
        elif of_right:  # the first factor of the result, which is Z or Z²; no such product has a term of its own
            term, delta = right, of_right
        last = stage is plan[-1]
        scale, number = (1.0, 0.0) if last else (_scale_of(bound), 0.0 if whole else on_path)
        per_left = scale / scales[left]
        weights = [
            alpha * per_left / scales[right],
            of_left * per_left,
            delta * scale / scales[term],
            (constant - number) * scale,
        ]
        found.append(([left, right, out, term, int(following.wait), 0], weights))
        path[out], numbers[out], scales[out] = on_path, number, scale
    return found


@functools.lru_cache(maxsize=256)
def build_schedule(n_iter: int, kind: str, D: int, device: torch.device) -> Schedule:
    """Build the tables for matrices of D rows, on the device, with the scales of float16."""
    slots, weights = zip(*_rows(stages(n_iter, kind), 1 / D), strict=True)
    return Schedule(
        torch.tensor(slots, dtype=torch.int32, device=device),
        torch.tensor(weights, dtype=torch.float32, device=device),
        len(slots),
        _scale_of(1),
        2.0 ** -math.ceil((n_iter - 1) * math.log2(2.25)),
    )
