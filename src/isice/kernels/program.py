"""The Newton–Schulz iteration as a table: which slots each stage multiplies, with which weights and scales.

A stage computes ``out ← αLC + γI``; its derivative follows from the same row. Slots of 16 bits hold a matrix times a
power of two that keeps it in range. Where a factor is T minus a multiple of the identity, M, only its tiles on the
diagonal have a slot of their own: the others are those of T.
"""

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor

T, R, Q, M = 0, 2, 4, 5  # T, R and M take turns in two slots each
SLOTS, DERIVATIVES = 7, 5  # the derivatives of T, R and Q follow; that of M is that of T
# float16 has 5 exponent bits: entries stay 64 times below its largest number, so that a matrix that is not positive
# semi-definite still fits; more steps than these would leave too few bits for the small entries.
_LARGEST, MOST_STEPS = 2.0**10, 12
_SHIFT = {"inverse": 6.0, "inverse_sqrt": 3.0, "sqrt": 3.0}  # M = T − shift·I
_GROWTH = {"inverse": 2.25, "inverse_sqrt": 1.5, "sqrt": 1.0}  # of the product of the factors, at most, in a step


class Stage(NamedTuple):
    """One row of the table."""

    left: int
    right: int
    out: int
    alpha: float = 1.0
    gamma: float = 0.0
    wait: bool = True  # whether it needs what the stage before it stored


class Program(NamedTuple):
    """The table of all stages; the result of the last one leaves the workspace."""

    slots: Tensor  # (stages, 8) int32: left, right and out, each with the slot of its diagonal tiles;
    # whether the next stage waits; zero
    weights: Tensor  # (stages, 2) float32: α, γ
    scale: float  # of T and of the first factor of an inverse root
    shift: float  # what M has less than T on the diagonal, times the scale
    derivative_scale: float  # of every derivative, relative to its matrix
    dtype: torch.dtype


def block_of(D: int) -> int:
    """The side of a tile; small tiles leave out more of the mirrored half."""
    return 64 if D > 32 else 32 if D > 16 else 16


def tiling(D: int) -> tuple[int, int, int]:
    """The side of a tile, how many lie side by side, and how many on and above the diagonal."""
    block = block_of(D)
    n_blocks = -(-D // block)
    return block, n_blocks, n_blocks * (n_blocks + 1) // 2


def tiled_shape(batch: int, D: int) -> tuple[int, int, int, int]:
    """The shape of a batch of tiled matrices."""
    block, _, n_tiles = tiling(D)
    return batch, n_tiles, block, block


def stages(n_iter: int, kind: str) -> list[Stage]:
    """The stages in exact arithmetic. Slot ``R + 1`` holds the first factor of an inverse root from the beginning.

    With q = (3I − T)²/4 an inverse W obeys T ← Tq, W ← Wq; roots Y and Z, both here R, obey R ← R(3I − T)/2. Of the two
    forms of q, T(T − 6I)/4 + 9I/4 is the more accurate where T is small; the other needs M alone.
    """
    found: list[Stage] = []
    for i in range(n_iter):
        t, new_t, r, new_r = T + i % 2, T + (i + 1) % 2, R + i % 2, R + (i + 1) % 2
        m, first, last = M + i % 2, i == 0, i == n_iter - 1
        if kind == "inverse":
            # The first factor is the product so far, and stays where that belongs.
            q = new_r if first else Q
            found.append(Stage(t, m, q, 0.25, 2.25))
            found += [] if last else [Stage(t, q, new_t)]
            found += [] if first else [Stage(r, q, new_r, wait=last)]
        else:
            found += [] if last else [Stage(m, m, Q, 0.25)]
            if kind == "sqrt" or not first:
                found.append(Stage(T if first else r, m, new_r, -0.5, wait=last))
            found += [] if last else [Stage(t, Q, new_t)]
    return found


def _scale_of(bound: float) -> float:
    return 2.0 ** math.floor(math.log2(_LARGEST / bound))


def _scaled(plan: list[Stage], kind: str) -> list[Stage]:
    """The weights for what is stored, each matrix times its scale. The result of the last stage has scale one."""
    scales = {**dict.fromkeys((T, T + 1, M, M + 1, R + 1), _scale_of(1)), Q: _scale_of(2.25)}
    found, factors = [], 0 if kind == "inverse" else 1
    for stage in plan:
        left, right, out = scales[stage.left], scales[stage.right], scales.get(stage.out, 1.0)
        if stage.out in (R, R + 1):
            factors += 1
            out = scales[stage.out] = _scale_of(_GROWTH[kind] ** factors)
        if stage is plan[-1]:
            out = 1.0
        found.append(stage._replace(alpha=stage.alpha * out / (left * right), gamma=stage.gamma * out))
    return found


def _with_diagonals(slot: int) -> tuple[int, int]:
    """The slot of most tiles, and that of the tiles on the diagonal."""
    return (slot - M + T, slot) if slot >= M else (slot, slot)


@functools.lru_cache(maxsize=64)
def program(n_iter: int, kind: str, device: torch.device) -> Program:
    """The table on the device, in float16 with scales, or in bfloat16 without where float16 has too little range."""
    plan, dtype, scale, derivative_scale = stages(n_iter, kind), torch.bfloat16, 1.0, 1.0
    if n_iter <= MOST_STEPS:
        plan, dtype, scale = _scaled(plan, kind), torch.float16, _scale_of(1)
        derivative_scale = 2.0 ** -math.ceil((n_iter - 1) * math.log2(2.25))
    slots = [
        [
            *_with_diagonals(s.left),
            *_with_diagonals(s.right),
            s.out,
            s.out - T + M if s.out < R else -1,
            following.wait,
            0,
        ]
        for s, following in zip(plan, plan[1:] + plan[:1], strict=True)
    ]
    return Program(
        torch.tensor(slots, dtype=torch.int32, device=device),
        torch.tensor([[s.alpha, s.gamma] for s in plan], dtype=torch.float32, device=device),
        scale, _SHIFT[kind] * scale, derivative_scale, dtype,
    )  # fmt: skip
