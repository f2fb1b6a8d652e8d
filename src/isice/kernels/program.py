"""The Newton–Schulz iteration as a table: which slots each stage multiplies, with which weights and scales.

A stage computes ``out ← αLC + βL + γI``; its derivative follows from the same row. Slots of 16 bits hold a matrix
times a power of two that keeps it in range.
"""

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor

T, R, Q, SLOTS = 0, 2, 4, 5  # T and R take turns in two slots each
# float16 has 5 exponent bits: entries stay 64 times below its largest number, so that a matrix that is not positive
# semi-definite still fits; more steps than these would leave too few bits for the small entries.
_LARGEST, _MOST_STEPS = 2.0**10, 12
_GROWTH = {"inverse": 2.25, "inverse_sqrt": 1.5, "sqrt": 1.0}  # of the product of the factors, at most, in a step


class Stage(NamedTuple):
    """One row of the table."""

    left: int
    right: int
    out: int
    alpha: float = 1.0
    beta: float = 0.0
    gamma: float = 0.0
    wait: bool = True  # whether it needs what the stage before it stored


class Program(NamedTuple):
    """The table of all stages; the result of the last one leaves the workspace."""

    slots: Tensor  # (stages, 4) int32: left, right, out, wait
    weights: Tensor  # (stages, 3) float32: α, β/α, γ
    scale: float  # of T and of the first factor of an inverse root
    derivative_scale: float  # of every derivative, relative to its matrix
    dtype: torch.dtype


def stages(n_iter: int, kind: str) -> list[Stage]:
    """The stages in exact arithmetic. Slot ``R + 1`` holds the first factor of an inverse root from the beginning."""
    found: list[Stage] = []
    for i in range(n_iter):
        t, new_t, r, new_r = T + i % 2, T + (i + 1) % 2, R + i % 2, R + (i + 1) % 2
        first, last = i == 0, i == n_iter - 1
        if kind == "inverse":
            # The first factor is the product so far, and stays where that belongs.
            q = new_r if first else Q
            found.append(Stage(t, t, q, 0.25, -1.5, 2.25))
            found += [] if last else [Stage(t, q, new_t)]
            found += [] if first else [Stage(r, q, new_r, wait=last)]
        else:
            found += [] if last else [Stage(t, t, Q, 0.25, -1.5, 2.25)]
            if kind == "sqrt" or not first:
                found.append(Stage(T if first else r, t, new_r, -0.5, 1.5, wait=last))
            found += [] if last else [Stage(t, Q, new_t)]
    return found


def _scale_of(bound: float) -> float:
    return 2.0 ** math.floor(math.log2(_LARGEST / bound))


def _scaled(plan: list[Stage], kind: str) -> list[Stage]:
    """The weights for what is stored, each matrix times its scale. The result of the last stage has scale one."""
    scales = {T: _scale_of(1), T + 1: _scale_of(1), Q: _scale_of(2.25), R + 1: _scale_of(1)}
    found, factors = [], 0 if kind == "inverse" else 1
    for stage in plan:
        left, right, out = scales[stage.left], scales[stage.right], scales.get(stage.out, 1.0)
        if stage.out in (R, R + 1):
            factors += 1
            out = scales[stage.out] = _scale_of(_GROWTH[kind] ** factors)
        if stage is plan[-1]:
            out = 1.0
        found.append(
            stage._replace(
                alpha=stage.alpha * out / (left * right), beta=stage.beta * out / left, gamma=stage.gamma * out
            )
        )
    return found


@functools.lru_cache(maxsize=64)
def program(n_iter: int, kind: str, device: torch.device) -> Program:
    """The table on the device, in float16 with scales, or in bfloat16 without where float16 has too little range."""
    plan, dtype, scale, derivative_scale = stages(n_iter, kind), torch.bfloat16, 1.0, 1.0
    if n_iter <= _MOST_STEPS:
        plan, dtype, scale = _scaled(plan, kind), torch.float16, _scale_of(1)
        derivative_scale = 2.0 ** -math.ceil((n_iter - 1) * math.log2(2.25))
    slots = [[s.left, s.right, s.out, int(s.wait)] for s in plan]
    weights = [[s.alpha, s.beta / s.alpha, s.gamma] for s in plan]
    return Program(
        torch.tensor(slots, dtype=torch.int32, device=device),
        torch.tensor(weights, dtype=torch.float32, device=device),
        scale, derivative_scale, dtype,
    )  # fmt: skip
