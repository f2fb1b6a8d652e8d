"""How the iteration is launched: sizes of tiles, how many blocks share a matrix, what a call needs beside matrices."""

import functools
import os
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from .newton_schulz import iterate
from .program import DERIVATIVES, SLOTS, Program, block_of, program, tiled_shape

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
    strip: int = 16  # rows of a tile that are in work at once, after the products
    registers: int | None = None  # of a thread, at most


class Step(NamedTuple):
    """What a step of iSICE needs beside S: tiled matrices and per-image values (B,)."""

    sigma: Tensor
    rate: Tensor
    lam: Tensor
    alive: Tensor  # int8: which parts are positive; written on the way forward, read on the way back
    d_sigma: Tensor | None = None  # the way back adds to it


def shape(D: int, planes: int, derivative: bool) -> Shape:
    """The sizes that were fastest on an H200."""
    block = block_of(D)
    if D <= 64:
        return Shape(block, min(32, block), 4, 3)
    if derivative:
        return Shape(block, 32, 4, 3 if planes == 2 else 4)
    return Shape(block, 64, 4, 3, registers=None if planes == 2 else 168)


class Call(NamedTuple):
    """What distinguishes one kind of call from another; each has its own compiled kernel."""

    device: torch.device
    D: int
    n_iter: int
    kind: str
    precision: str
    derivative: bool
    step: bool


class Plan(NamedTuple):
    """What is fixed for a kind of call."""

    program: Program
    options: dict[str, Any]
    side: int
    n_tiles: int
    n_slots: int
    planes: int
    group: int  # blocks that share a matrix
    resident: int  # groups that the GPU holds at once


def _resident_blocks(call: Call, dtype: torch.dtype, options: dict[str, Any]) -> int:
    """How many blocks the GPU holds at once; compiles the kernel where that has not been done."""
    single, whole = torch.float32, torch.int32
    matrices = (single,) * 5 + (torch.int8 if call.step else single,) + (single,) * 4
    dtypes = (*matrices, dtype, single, whole, single, whole, single)
    compiled = iterate.warmup(*dtypes, 1, 256, 8, 64, 0.0, 1.0, 1.0, 1.0, grid=(1,), **options)
    compiled._init_handles()
    properties, threads = torch.cuda.get_device_properties(call.device), 32 * options["num_warps"]
    by_registers = properties.regs_per_multiprocessor // (-(-compiled.n_regs // 8) * 8 * threads)
    by_memory = properties.shared_memory_per_multiprocessor // (compiled.metadata.shared + 1024)
    by_threads = properties.max_threads_per_multi_processor // threads
    return max(1, min(by_registers, by_memory, by_threads)) * properties.multi_processor_count


@functools.lru_cache(maxsize=256)
def plan(call: Call) -> Plan:
    """Sizes, options and program of a kind of call; the first time, its kernel is compiled."""
    steps = program(call.n_iter, call.kind, call.device)
    planes = 2 if steps.dtype == torch.bfloat16 else PRECISIONS[call.precision]
    sizes = shape(call.D, planes, call.derivative)
    side = triton.cdiv(call.D, sizes.block) * sizes.block
    n_tiles = (side // sizes.block) * (side // sizes.block + 1) // 2
    n_slots, group = SLOTS + DERIVATIVES * call.derivative, 1 if INTERPRETED else n_tiles
    options: dict[str, Any] = {
        "POWER": _POWER[call.kind], "DERIVATIVE": call.derivative, "STEP": call.step,
        "SIDE": side, "BLOCK": sizes.block, "BLOCK_K": sizes.block_k,
        "STRIP": min(sizes.block, sizes.strip), "PLANES": planes, "N_TILES": n_tiles, "N_SLOTS": n_slots,
        "GROUP": group, "num_warps": sizes.warps, "num_stages": sizes.depth, "maxnreg": sizes.registers,
        "launch_cooperative_grid": not INTERPRETED,
    }  # fmt: skip
    resident = 2
    if not INTERPRETED:
        blocks = _resident_blocks(call, steps.dtype, options)
        # On a small GPU a block takes several tiles of a large matrix.
        group = options["GROUP"] = min(n_tiles, blocks)
        resident = blocks // group
    return Plan(steps, options, side, n_tiles, n_slots, planes, group, resident)


def run(
    source: Tensor,
    D: int,
    n_iter: int,
    kind: str,
    precision: str,
    *,
    shift: float = 0.0,
    cotangent: Tensor | None = None,
    step: Step | None = None,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The iteration, or with a cotangent its backward pass, for tiled matrices of D rows.

    Args:
        source: Symmetric matrices.
        D: How many rows they have.
        n_iter: Newton–Schulz steps.
        kind: ``"inverse"``, ``"sqrt"`` or ``"inverse_sqrt"``; an inverse root takes two steps or more.
        precision: A key of :data:`PRECISIONS`.
        shift: Added to the diagonal first.
        cotangent: Of the result, or with ``step`` of the next S; symmetric.
        step: A step of iSICE with the inverse of ``source`` as ∇₁.
        out: Where to put the result.

    Returns:
        The result, the next S, or the cotangent of ``source``, tiled; and the cotangents of rate and λ, summed over
        each tile (B, tiles, 2), empty without a step back.
    """
    batch, derivative = len(source), cotangent is not None
    fixed = plan(Call(source.device, D, n_iter, kind, precision, derivative, step is not None))
    n_tiles, side = fixed.n_tiles, fixed.side
    out = source.new_empty(tiled_shape(batch, D)) if out is None else out
    moments = source.new_empty((batch, n_tiles, 2) if step and derivative else (0,))
    norms = source if cotangent is None else torch.linalg.vector_norm(cotangent.flatten(1), dim=1)
    of_step: tuple[Tensor, ...] = (source,) * 6
    if step is not None:
        d_sigma = source if step.d_sigma is None else step.d_sigma
        of_step = (step.sigma, step.alive, step.rate, step.lam, d_sigma, moments)
    # The last round may be small: then its blocks have the GPU to themselves.
    groups, device, tile = min(batch, fixed.resident), source.device, fixed.options["BLOCK"] ** 2
    workspace = torch.empty((groups, fixed.n_slots, fixed.planes, side, side), dtype=fixed.program.dtype, device=device)
    partials, results = source.new_empty((groups, n_tiles)), source.new_empty((groups, n_tiles, 2, tile))
    counters = torch.zeros(groups, dtype=torch.int32, device=device)
    if batch:
        steps = fixed.program
        iterate[(groups * fixed.group,)](
            source, source if cotangent is None else cotangent, norms, out, *of_step,
            workspace, partials, counters, results, steps.slots, steps.weights, len(steps.slots),
            batch, D, side, shift, steps.scale, steps.shift, steps.derivative_scale, **fixed.options,
        )  # fmt: skip
    return out, moments
