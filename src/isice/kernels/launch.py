"""How the iteration is launched: sizes of tiles, how many blocks share a matrix, what a call needs beside matrices."""

import functools
import os
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from .newton_schulz import iterate
from .program import DERIVATIVES, MOST_STEPS, SLOTS, Program, block_of, program, tiled_shape, tiling

PRECISIONS = {"accurate": 2, "fast": 1}  # planes of 16 bits: 22 or 11 bits of a number
_POWER = {"inverse": -1.0, "sqrt": 0.5, "inverse_sqrt": -0.5}
# Triton's interpreter runs the blocks one after the other: none may wait for another.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


class Shape(NamedTuple):
    """Sizes of a launch."""

    block_k: int  # depth of a step of a product
    warps: int
    depth: int  # steps of a product in flight
    strip: int = 16  # rows of a tile that are in work at once, after the products
    registers: int | None = None  # of a thread, at most
    bulk: bool = True  # whether the copy engine of Hopper GPUs loads the factors
    blocks: int = 2  # that a multiprocessor of an H200 holds at once
    cost: float = 1.0  # of a round, in which each block carries one tile, relative to the first of the alternatives


class Step(NamedTuple):
    """What a step of iSICE needs beside S: tiled matrices and per-image values (B,)."""

    sigma: Tensor
    eta: Tensor
    lam: Tensor
    alive: Tensor  # int8: which parts are positive; written on the way forward, read on the way back
    beta: float = 1.0  # times η is the rate of this step
    d_sigma: Tensor | None = None  # the way back adds to it
    moments: Tensor | None = None  # (B, tiles, 2): for the cotangents of rate and λ, summed by tile, on the way back


def shapes(D: int, planes: int, derivative: bool) -> tuple[Shape, ...]:
    """The sizes that were fastest on an H200; of alternatives, one is faster for some batches, another for others."""
    if D <= 64:
        return (Shape(min(32, block_of(D)), 4, 3, bulk=False),)
    if derivative and planes == 2:
        return (Shape(32, 4, 3, bulk=256 < D <= 512),)
    if derivative:
        first = Shape(64, 4, 2)
        second = first._replace(strip=8, registers=168, blocks=3, cost=1.45)
    elif planes == 2:
        first, second = Shape(64, 4, 3), Shape(64, 4, 2, registers=168, blocks=3, cost=1.38)
    else:
        first, second = Shape(64, 4, 3, blocks=3), Shape(64, 4, 3, registers=128, blocks=4, cost=1.2)
    return first, second


def blocks_per_matrix(n_tiles: int, at_once: int) -> int:
    """How many blocks share a matrix on a GPU that holds ``at_once`` of them.

    One for each tile leaves few matrices in work, whose slots the second cache level holds. Where that would leave many
    blocks without work, as with a matrix that has more tiles than half of them, a block takes several tiles.
    """
    groups = {k: -(-n_tiles // k) for k in (1, 2, 3, 4)}
    rates = {k: at_once // group / k for k, group in groups.items()}
    enough = 0.8 * max(rates.values())
    return next((groups[k] for k, rate in rates.items() if rate and rate >= enough), min(n_tiles, at_once))


@functools.lru_cache(maxsize=256)
def choose(alternatives: tuple[Shape, ...], n_tiles: int, batch: int, processors: int) -> Shape:
    """The alternative with the cheapest rounds."""

    def cost(sizes: Shape) -> float:
        at_once = sizes.blocks * processors
        group = blocks_per_matrix(n_tiles, at_once)
        return triton.cdiv(batch, at_once // group) * triton.cdiv(n_tiles, group) * sizes.cost

    return min(alternatives, key=cost)


class Call(NamedTuple):
    """What distinguishes one kind of call from another; each has its own compiled kernel."""

    device: torch.device
    D: int
    n_iter: int
    kind: str
    precision: str
    derivative: bool
    step: bool
    moments: bool
    sizes: Shape


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
    matrices = (single,) * 6 + (torch.int8 if call.step else single,) + (single,) * 4
    planes = _descriptor(torch.empty(options["SIDE"], options["SIDE"], dtype=dtype, device=call.device), options)
    of_groups = (dtype, planes if options["BULK"] else dtype, single, whole, single)
    numbers = (whole, single, 1, 256, 8, 64, 0.0, 1.0, 1.0, 1.0)
    compiled = iterate.warmup(*matrices, 1.0, *of_groups, *numbers, grid=(1,), **options)
    compiled._init_handles()
    properties, threads = torch.cuda.get_device_properties(call.device), 32 * options["num_warps"]
    by_registers = properties.regs_per_multiprocessor // (-(-compiled.n_regs // 8) * 8 * threads)
    by_memory = properties.shared_memory_per_multiprocessor // (compiled.metadata.shared + 1024)
    by_threads = properties.max_threads_per_multi_processor // threads
    return max(1, min(by_registers, by_memory, by_threads)) * properties.multi_processor_count


def _n_planes(n_iter: int, precision: str) -> int:
    """More steps than float16 allows are computed in bfloat16, which has too few bits for one plane."""
    return PRECISIONS[precision] if n_iter <= MOST_STEPS else 2


@functools.lru_cache(maxsize=8)
def _processors(device: torch.device) -> int:
    return 1 if INTERPRETED else torch.cuda.get_device_properties(device).multi_processor_count


def _has_copy_engine(device: torch.device) -> bool:
    return not INTERPRETED and torch.cuda.get_device_properties(device).major >= 9


def _descriptor(workspace: Tensor, options: dict[str, Any]) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(workspace.view(-1, options["SIDE"]), [options["BLOCK"], options["BLOCK_K"]])


@functools.lru_cache(maxsize=256)
def plan(call: Call) -> Plan:
    """Sizes, options and program of a kind of call; the first time, its kernel is compiled."""
    steps = program(call.n_iter, call.kind, call.device)
    planes, sizes = _n_planes(call.n_iter, call.precision), call.sizes
    block, n_blocks, n_tiles = tiling(call.D)
    side = n_blocks * block
    n_slots, group = SLOTS + DERIVATIVES * call.derivative, 1 if INTERPRETED else n_tiles
    options: dict[str, Any] = {
        "POWER": _POWER[call.kind], "DERIVATIVE": call.derivative, "STEP": call.step,
        "MOMENTS": call.moments,
        "SIDE": side, "BLOCK": block, "BLOCK_K": sizes.block_k,
        "STRIP": min(block, sizes.strip), "PLANES": planes, "N_TILES": n_tiles, "N_SLOTS": n_slots,
        "GROUP": group, "BULK": sizes.bulk and _has_copy_engine(call.device), "num_warps": sizes.warps,
        "num_stages": sizes.depth, "maxnreg": sizes.registers, "launch_cooperative_grid": not INTERPRETED,
    }  # fmt: skip
    resident = 2
    if not INTERPRETED:
        blocks = _resident_blocks(call, steps.dtype, options)
        group = options["GROUP"] = blocks_per_matrix(n_tiles, blocks)
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
    norms: Tensor | None = None,
    step: Step | None = None,
    out: Tensor | None = None,
    counters: Tensor | None = None,
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
        norms: Its norm for each matrix (B,), or somewhat more.
        step: A step of iSICE with the inverse of ``source`` as ∇₁.
        out: Where to put the result.
        counters: As many zeros (int32) as there are matrices, which are then used up.

    Returns:
        The result, the next S, or the cotangent of ``source``, tiled; and a bound on the norms of the latter (B,).
    """
    batch, derivative, device = len(source), cotangent is not None, source.device
    out = source.new_empty(tiled_shape(batch, D)) if out is None else out
    alternatives = shapes(D, _n_planes(n_iter, precision), derivative)
    sizes = choose(alternatives, out.shape[1], batch, _processors(device))
    moments = derivative and step is not None and step.moments is not None
    fixed = plan(Call(device, D, n_iter, kind, precision, derivative, step is not None, moments, sizes))
    next_norms = source.new_empty(batch)
    if not batch:
        return out, next_norms
    if norms is None:
        norms = source if cotangent is None else torch.linalg.vector_norm(cotangent.flatten(1), dim=1)
    of_step: tuple[Any, ...] = (*(source,) * 6, 1.0)
    if step is not None:
        of_step = (step.sigma, step.alive, step.eta, step.lam, step.d_sigma, step.moments, step.beta)
        of_step = tuple(source if value is None else value for value in of_step)
    # The last round may be small: then its blocks have the GPU to themselves.
    groups, n_tiles, side, tile = min(batch, fixed.resident), fixed.n_tiles, fixed.side, fixed.options["BLOCK"] ** 2
    steps, options = fixed.program, fixed.options
    workspace = torch.empty((groups, fixed.n_slots, fixed.planes, side, side), dtype=steps.dtype, device=device)
    partials, results = source.new_empty((groups, 2, n_tiles)), source.new_empty((groups, n_tiles, 2, tile))
    iterate[(groups * fixed.group,)](
        source, source if cotangent is None else cotangent, norms, out, next_norms, *of_step,
        workspace, _descriptor(workspace, options) if options["BULK"] else workspace, partials,
        torch.zeros(groups, dtype=torch.int32, device=device) if counters is None else counters, results,
        steps.slots, steps.weights, len(steps.slots), batch, D, side, shift, steps.scale, steps.shift,
        steps.derivative_scale, **options,
    )  # fmt: skip
    return out, next_norms
