"""How the iteration is launched: sizes of tiles, how many blocks share a matrix, what a call needs beside matrices."""

import functools
import math
import os
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from .newton_schulz import iterate
from .program import SLOTS, program

PRECISIONS = {"accurate": 2, "fast": 1}  # planes of 16 bits: 22 or 11 bits of a number
_POWER = {"inverse": -1.0, "sqrt": 0.5, "inverse_sqrt": -0.5}
# Triton's interpreter runs the blocks one after the other: none may wait for another.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


class Shape(NamedTuple):
    """Sizes of a launch."""

    block: int  # side of a tile
    block_k: int  # depth of a step of a product
    warps: int
    depth: int  # steps of a product in flight
    strip: int = 16  # rows of a tile that are in work at once, before and after the products
    registers: int | None = None  # of a thread, at most


class Step(NamedTuple):
    """What a step of iSICE needs beside S: packed matrices (B, D(D+1)/2) and per-image values (B,)."""

    sigma: Tensor
    rate: Tensor
    lam: Tensor
    alive: Tensor  # int8: which parts are positive; written on the way forward, read on the way back
    d_sigma: Tensor | None = None  # the way back adds to it


def shape(D: int, planes: int, derivative: bool) -> Shape:
    """The sizes that were fastest on an H200; small tiles leave out more of the mirrored half."""
    if D <= 64:
        return Shape(max(16, triton.next_power_of_2(D)), 16 if D <= 16 else 32, 4, 3)
    return Shape(64, 32 if planes == 2 and derivative else 64, 4, 3)


@functools.lru_cache(maxsize=256)
def _resident_groups(
    device: torch.device, options: tuple[tuple[str, Any], ...], dtypes: tuple[torch.dtype, ...]
) -> int:
    """How many groups of blocks the GPU holds at once; compiles the kernel where that has not been done."""
    settings = dict(options)
    compiled = iterate.warmup(*dtypes, 1, 256, 8, 0.0, 1.0, 1.0, grid=(1,), **settings)
    compiled._init_handles()
    properties, threads = torch.cuda.get_device_properties(device), 32 * settings["num_warps"]
    by_registers = properties.regs_per_multiprocessor // (-(-compiled.n_regs // 8) * 8 * threads)
    by_memory = properties.shared_memory_per_multiprocessor // (compiled.metadata.shared + 1024)
    by_threads = properties.max_threads_per_multi_processor // threads
    blocks = max(1, min(by_registers, by_memory, by_threads)) * properties.multi_processor_count
    return max(1, blocks // settings["GROUP"])


def matrix_size(matrices: Tensor) -> int:
    """D of whole matrices (B, D, D) or packed ones (B, D(D+1)/2)."""
    return matrices.shape[-1] if matrices.ndim == 3 else (math.isqrt(8 * matrices.shape[-1] + 1) - 1) // 2


def run(
    source: Tensor,
    n_iter: int,
    kind: str,
    precision: str,
    *,
    shift: float = 0.0,
    cotangent: Tensor | None = None,
    vector: bool = False,
    packed: bool = False,
    step: Step | None = None,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The iteration, or with a cotangent its backward pass, for float32 matrices (B, D, D) or packed (B, D(D+1)/2).

    Args:
        source: Symmetric matrices.
        n_iter: Newton–Schulz steps.
        kind: ``"inverse"``, ``"sqrt"`` or ``"inverse_sqrt"``; an inverse root takes two steps or more.
        precision: A key of :data:`PRECISIONS`.
        shift: Added to the diagonal first.
        cotangent: Of the result, or with ``step`` of the next S: (B, D, D), or the packed entries of a symmetric one.
        vector: Whether a packed cotangent is that of a vector, each of whose entries stands for two of the matrix.
        packed: Whether the result is packed; always so with ``step``.
        step: A step of iSICE with the inverse of ``source`` as ∇₁.
        out: Where to put the result.

    Returns:
        The result, the next S, or the cotangent of ``source``; and the cotangents of rate and λ, summed over each tile
        (B, tiles, 2), empty without a step back.
    """
    batch, D, derivative = len(source), matrix_size(source), cotangent is not None
    plan = program(n_iter, kind, source.device)
    planes = 2 if plan.dtype == torch.bfloat16 else PRECISIONS[precision]
    sizes = shape(D, planes, derivative)
    side = triton.cdiv(D, sizes.block) * sizes.block
    n_tiles = (side // sizes.block) * (side // sizes.block + 1) // 2
    n_slots, packed = SLOTS * (1 + derivative), packed or step is not None
    group = 1 if INTERPRETED else n_tiles
    if out is None:
        out = source.new_empty((batch, D * (D + 1) // 2) if packed else (batch, D, D))
    moments = source.new_empty((batch, n_tiles, 2) if step and derivative else (0,))
    options: dict[str, Any] = {
        "POWER": _POWER[kind], "DERIVATIVE": derivative, "STEP": step is not None,
        "SOURCE_PACKED": source.ndim == 2, "GRAD_PACKED": cotangent is not None and cotangent.ndim == 2,
        "GRAD_VECTOR": vector, "OUT_PACKED": packed,
        "SIDE": side, "BLOCK": sizes.block, "BLOCK_K": sizes.block_k, "STRIP": min(sizes.block, sizes.strip),
        "PLANES": planes, "N_TILES": n_tiles, "N_SLOTS": n_slots, "GROUP": group,
        "num_warps": sizes.warps, "num_stages": sizes.depth, "maxnreg": sizes.registers,
        "launch_cooperative_grid": not INTERPRETED,
    }  # fmt: skip
    norms = source if cotangent is None else torch.linalg.vector_norm(cotangent.flatten(1), dim=1)
    of_step: tuple[Tensor, ...] = (source,) * 6
    if step is not None:
        d_sigma = source if step.d_sigma is None else step.d_sigma
        of_step = (step.sigma, step.alive, step.rate, step.lam, d_sigma, moments)
    matrices = (source, source if cotangent is None else cotangent, norms, out, *of_step)
    single, whole = torch.float32, torch.int32
    if INTERPRETED:
        groups = min(batch, 2)
    else:
        dtypes = (*(m.dtype for m in matrices), plan.dtype, single, whole, single, whole, single)
        resident = _resident_groups(source.device, tuple(options.items()), dtypes)
        groups = triton.cdiv(batch, triton.cdiv(max(1, batch), resident))  # all have as many matrices as any other
    workspace = torch.empty((groups, n_slots, planes, side, side), dtype=plan.dtype, device=source.device)
    partials, results = source.new_empty((groups, n_tiles)), source.new_empty((groups, n_tiles, 2, sizes.block**2))
    counters = torch.zeros(groups, dtype=whole, device=source.device)
    if batch:
        iterate[(groups * group,)](
            *matrices, workspace, partials, counters, results, plan.slots, plan.weights, len(plan.slots),
            batch, D, shift, plan.scale, plan.derivative_scale, **options,
        )  # fmt: skip
    return out, moments
