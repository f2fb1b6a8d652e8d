"""The Newton–Schulz iteration as a table: which slots each stage multiplies, with which weights and scales.

A stage computes ``out ← αLC + βT + γI``; its derivative follows from the same row. Slots of 16 bits hold a matrix times
a power of two that keeps it in range. Where a factor is T minus a multiple of the identity, M, only its tiles on the
diagonal have a slot of their own: the others are those of T.

With P = ½(3I − T) a step is T ← TP²; the results are the products of all P² (inverse), of all P (inverse root), and T
times the latter (root). Two steps together take five products instead of six. Their P are, with U = T(T − 4.5I) +
3.375I, together Z = (U² − 8.625T + 24.609375I)/16, a polynomial of degree four by two products; then T ← TZ².

Half of a product is computed and mirrored, which is right because all matrices are polynomials of T and commute. A Z of
fewer bits would commute with T to that many only: cheaper products on the way to it cost the result its accuracy.
"""

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor

T, R, Q, M = 0, 2, 4, 5  # T, R and M take turns in two slots each; Q is U, then Z²
SLOTS, DERIVATIVES = 7, 5  # the derivatives of T, R and Q follow; that of M is that of T
# float16 has 5 exponent bits: entries stay 64 times below its largest number, so that a matrix that is not positive
# semi-definite still fits. After more steps than these too few bits are left for derivatives that did not grow.
_LARGEST, MOST_STEPS = 2.0**10, 12
_PAIR, _SINGLE = 4.5, {"inverse": 6.0, "inverse_sqrt": 3.0, "sqrt": 3.0}  # M = T − this·I, before two steps and one
_GROWTH = {"inverse": 2.25, "inverse_sqrt": 1.5, "sqrt": 1.0}  # of the result, at most, in a step
PLANES_OF = {"accurate": 2, "fast": 1}  # of 16 bits, by precision: 22 or 11 bits of a number


class Stage(NamedTuple):
    """One row of the table."""

    left: int
    right: int
    out: int
    alpha: float = 1.0
    gamma: float = 0.0
    bound: float = 1.0  # on the entries of what it computes
    wait: bool = True  # whether it needs what the stage before it stored
    beta: float = 0.0
    term: int = -1  # the slot of T in βT
    shift: float = 0.0  # what M has less than T, if it computes T


class Program(NamedTuple):
    """The table of all stages; the result of the last one leaves the workspace."""

    slots: Tensor  # (stages, 9) int32: left, right and out, each with the slot of its diagonal tiles; the slot of βT or
    # -1; whether the next stage waits; zero
    weights: Tensor  # (stages, 4) float32: α, β, γ, and what M has less than T
    scale: float  # of the first T
    shift: float  # what the first M has less than T on the diagonal, times the scale
    derivative_scale: float  # of every derivative, relative to its matrix


def block_of(D: int) -> int:
    """The side of a tile; small tiles leave out more of the mirrored half."""
    return 64 if D > 32 else 32 if D > 16 else 16


def tiling(D: int, block: int | None = None) -> tuple[int, int, int]:
    """The side of a tile, how many lie side by side, and how many on and above the diagonal."""
    block = block or block_of(D)
    n_blocks = -(-D // block)
    return block, n_blocks, n_blocks * (n_blocks + 1) // 2


def tiled_shape(batch: int, D: int) -> tuple[int, int, int, int]:
    """The shape of a batch of tiled matrices."""
    block, _, n_tiles = tiling(D)
    return batch, n_tiles, block, block


def _two_steps(i: int, kind: str, result: int | None, steps_left: int) -> list[Stage]:
    """Stages of the ``i``-th two steps; ``result`` is the slot of the result so far, the slot of the next is R + i % 2.

    Z lies in the slot of the next T, or where the first factor of an inverse root belongs.
    """
    t, new_t, new_r = T + i % 2, T + (i + 1) % 2, R + i % 2
    root, first = kind != "inverse", result is None
    z, square = new_r if first and root else new_t, new_r if first and not root else Q
    found = [
        Stage(t, t - T + M, Q, gamma=3.375, bound=3.375),
        Stage(Q, Q, z, 1 / 16, 24.609375 / 16, bound=2.25, beta=-8.625 / 16, term=t),
    ]
    if steps_left or not root:
        found.append(Stage(z, z, square, bound=2.25**2))
    if result is not None:
        factor = z if root else square
        product = Stage(result, factor, new_r, bound=_GROWTH[kind] ** (2 * i + 2), wait=not (root and steps_left))
        found.append(product)
    if steps_left:
        shift = _PAIR if steps_left > 1 else _SINGLE[kind]
        found.append(Stage(t, square, new_t, shift=shift, wait=root or first))
    return found


def _one_step(i: int, kind: str, result: int | None) -> list[Stage]:
    t = T + i % 2
    if kind != "inverse":
        return [Stage(t if result is None else result, t - T + M, R + i % 2, -0.5)]
    # P² = T(T − 6I)/4 + 9I/4 is more accurate where T is small than the square of P.
    square = Stage(t, t - T + M, Q, 0.25, 2.25, bound=2.25)
    return [square] if result is None else [square, Stage(result, Q, R + i % 2)]


def stages(n_iter: int, kind: str) -> list[Stage]:
    """The stages in exact arithmetic; an odd number of steps ends with a single one."""
    found: list[Stage] = []
    result = T if kind == "sqrt" else None
    for i in range(n_iter // 2):
        found += _two_steps(i, kind, result, n_iter - 2 * i - 2)
        result = R + i % 2
    if n_iter % 2:
        found += _one_step(n_iter // 2, kind, result)
    return found


def _scale_of(bound: float) -> float:
    return 2.0 ** math.floor(math.log2(_LARGEST / bound))


def _scaled(plan: list[Stage]) -> list[Stage]:
    """The weights for what is stored, each matrix times its scale. The result of the last stage has scale one."""
    scales, found = {T: _scale_of(1)}, []
    for stage in plan:
        # M has the scale of its T.
        left, right = (scales[slot - M + T if slot >= M else slot] for slot in (stage.left, stage.right))
        out = 1.0 if stage is plan[-1] else _scale_of(stage.bound)
        found.append(
            stage._replace(
                alpha=stage.alpha * out / (left * right),
                beta=stage.beta * out / scales.get(stage.term, 1.0),
                gamma=stage.gamma * out,
                shift=stage.shift * out,
            )
        )
        scales[stage.out] = out
    return found


def _with_diagonals(slot: int) -> tuple[int, int]:
    """The slot of most tiles, and that of the tiles on the diagonal."""
    return (slot - M + T, slot) if slot >= M else (slot, slot)


@functools.lru_cache(maxsize=64)
def program(n_iter: int, kind: str, device: torch.device) -> Program:
    """The table on the device, with the scales of float16."""
    plan, scale = _scaled(stages(n_iter, kind)), _scale_of(1)
    derivative_scale = 2.0 ** -math.ceil((n_iter - 1) * math.log2(2.25))
    slots = [
        [
            *_with_diagonals(s.left),
            *_with_diagonals(s.right),
            s.out,
            s.out - T + M if s.shift else -1,
            s.term,
            following.wait,
            0,
        ]
        for s, following in zip(plan, plan[1:] + plan[:1], strict=True)
    ]
    return Program(
        torch.tensor(slots, dtype=torch.int32, device=device),
        torch.tensor([[s.alpha, s.beta, s.gamma, s.shift] for s in plan], dtype=torch.float32, device=device),
        scale, (_PAIR if n_iter > 1 else _SINGLE[kind]) * scale, derivative_scale,
    )  # fmt: skip
