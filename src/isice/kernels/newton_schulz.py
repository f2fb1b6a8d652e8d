"""Launcher of the Newton–Schulz iteration: one cooperative launch, portable or Hopper kernel.

The launch also contains the trace normalisation and, for iSICE, the gradient step or its backward
pass. The arguments of a kernel are bundled in the named tuples ``Operands``, ``Step``,
``Workspace`` and ``Problem``.
"""

import functools
import os
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from .layout import norms_of, tiled_shape, tiling
from .occupancy import Occupancy, Partition, blocks_per_matrix, partition, pipeline_shape, resident_blocks
from .portable import iterate
from .schedule import PLANES, SLOTS, Schedule, build_schedule

hopper: ModuleType | None
try:
    from .hopper import kernel as hopper
except (ImportError, AttributeError):  # Gluon is experimental; fall back if it is missing or its API changed.
    hopper = None

_POWER = {"inverse": -1.0, "sqrt": 0.5, "inverse_sqrt": -0.5}
# Triton's interpreter runs blocks one after the other, so a block that waits for another deadlocks.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
_STRIP = 16  # rows of a tile that the epilogue holds in registers
_HOPPER_REGISTERS = 128  # for each thread on average: two blocks of eight warps fill the register file


class Config(NamedTuple):
    """Compile-time constants of a kernel."""

    POWER: float  # the result is multiplied by this power of the trace
    DERIVATIVE: bool  # whether the launch computes the backward pass
    STEP: bool  # whether a gradient step of iSICE follows
    MOMENTS: bool  # whether the backward pass sums the cotangents of η and λ
    SIDE: int  # rows of a matrix in the workspace, a multiple of BLOCK
    BLOCK: int  # side of a tile
    BLOCK_K: int  # depth of a k-slice
    STRIP: int  # rows of a tile that the epilogue holds in registers
    PLANES: int  # float16 matrices whose sum represents a float32 matrix: 1, or 2 (split fp16)
    N_TILES: int  # tiles of a matrix, on and above the diagonal
    N_SLOTS: int  # intermediate matrices kept per input matrix
    GROUP: int  # blocks that share a matrix
    INTERLEAVE: int  # matrices that a group works on in turn; 0 for the portable kernel
    DEPTH: int  # k-slices in flight


class Operands(NamedTuple):
    """Tiled matrices of a launch, and bounds (B,) on the norms of cotangents."""

    source: Tensor
    cotangent: Tensor
    norms: Tensor  # bounds on the norms of ``cotangent``
    out: Tensor
    out_norms: Tensor  # bounds on the norms of ``out``; written by the backward pass only


class Step(NamedTuple):
    """Gradient step of iSICE after the iteration: tiled matrices and per-image values (B,)."""

    sigma: Tensor
    eta: Tensor
    lam: Tensor
    positive_mask: Tensor  # int8, bit 0 where S⁺ > 0 and bit 1 where S⁻ > 0; written forward, read backward
    beta: float = 1.0  # β: the rate of this step is βη
    d_sigma: Tensor | None = None  # the backward pass adds to it
    moments: Tensor | None = None  # (B, tiles, 2), backward: cotangents of rate and λ, summed for each tile


class Workspace(NamedTuple):
    """Scratch memory of the matrices in flight."""

    slots: Tensor  # (matrices in flight, slots, planes, SIDE, SIDE) float16
    partials: Tensor  # two sums for each tile
    results: Tensor  # tiles of the result, and of its derivative
    counters: Tensor  # arrivals of blocks at the barriers of a matrix


class Problem(NamedTuple):
    """Run-time sizes of a launch."""

    batch: int  # matrices of the full groups
    remainder: int  # matrices left over for the blocks that do not fill a group, Hopper only
    D: int
    side: int  # Config.SIDE as a run-time value
    shift: float  # added to the diagonal


class KernelKey(NamedTuple):
    """What a compiled kernel depends on."""

    device: torch.device
    D: int
    n_iter: int
    kind: str
    precision: str
    derivative: bool
    step: bool
    moments: bool
    for_hopper: bool


class Plan(NamedTuple):
    """A compiled kernel and what its launches share."""

    schedule: Schedule
    launch: Callable[..., None]  # takes the number of blocks and the run-time arguments
    descriptors: Callable[[Tensor], list[Any]]  # TMA descriptors of slots, Hopper only
    slots_shape: tuple[int, ...]  # of one matrix
    occupancy: Occupancy


def _example_args(key: KernelKey, schedule: Schedule, side: int) -> tuple[Any, ...]:
    """Arguments to compile with.

    A kernel is compiled once and launched with other arguments, so it may assume only what holds
    for all of them. The slices ``[1:]`` keep Triton from assuming aligned pointers to vectors.
    """
    matrix, vector = torch.empty(8, device=key.device), torch.empty(8, device=key.device)[1:]
    mask = torch.empty(16, dtype=torch.int8, device=key.device) if key.step else matrix
    slots = torch.empty(side, side, dtype=torch.float16, device=key.device)
    counters = torch.empty(8, dtype=torch.int32, device=key.device)[1:]
    return (
        Operands(matrix, matrix, vector, matrix, vector),
        Step(matrix, vector, vector, mask, 1.0, matrix, vector),
        Workspace(slots, matrix, matrix, counters),
        schedule._replace(n_stages=3),
        Problem(3, 3, 3, 3, 0.0),
    )


def _compile(kernel: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    compiled = kernel.warmup(*args, grid=(1,), **options)
    compiled._init_handles()
    return compiled


@functools.lru_cache(maxsize=8)
def has_hopper_kernel(device: torch.device) -> bool:
    """Return whether the Hopper kernel runs on a device."""
    return hopper is not None and not INTERPRETED and torch.cuda.get_device_properties(device).major == 9


@functools.lru_cache(maxsize=256)
def plan(key: KernelKey) -> Plan:
    """Choose sizes and compile, once for each key; fall back to the portable kernel."""
    try:
        return _plan(key)
    except Exception as error:  # The compiler and its passes raise errors of many types.
        if not key.for_hopper or isinstance(error, torch.OutOfMemoryError):
            raise
        warnings.warn(
            f"isice: the kernel for Hopper GPUs does not compile with Triton {triton.__version__} (tested with 3.6 and "
            f"3.9); the slower portable kernel is used: {error}",
            stacklevel=2,
        )
        return _plan(key._replace(for_hopper=False))


def uses_hopper_kernel(device: torch.device, precision: str) -> bool:
    """Return whether a device uses the Hopper kernel, by compiling it, which takes seconds.

    Raises an error if the portable kernel does not compile either.
    """
    if not has_hopper_kernel(device):
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        keys = [KernelKey(device, 128, 7, "inverse", precision, way, False, False, True) for way in (False, True)]
        return all(plan(key).occupancy.interleave > 0 for key in keys)


def _plan(key: KernelKey) -> Plan:
    """Compile the kernel and determine how many blocks work on a matrix."""
    schedule, planes = build_schedule(key.n_iter, key.kind, key.D, key.device), PLANES[key.precision]
    block, n_blocks, n_tiles = tiling(key.D)
    side, shape = n_blocks * block, pipeline_shape(key.D, planes, key.derivative, key.for_hopper)
    n_slots = SLOTS * (1 + key.derivative)
    config = Config(
        _POWER[key.kind], key.derivative, key.step, key.moments, side, block, shape.block_k, min(block, _STRIP), planes,
        n_tiles, n_slots, 1 if INTERPRETED else n_tiles, shape.interleave, shape.depth,
    )  # fmt: skip
    options: dict[str, Any] = {"CONFIG": config, "num_warps": 4, "launch_cooperative_grid": not INTERPRETED}
    descriptors: Callable[..., list[Any]]
    kernel, descriptors = iterate, lambda slots: []
    if key.for_hopper and hopper is not None:
        kernel, descriptors = hopper.iterate, functools.partial(hopper.descriptors, config=config)
        options["maxnreg"] = _HOPPER_REGISTERS
    else:
        options["num_stages"] = shape.depth
    if INTERPRETED:
        occupancy = Occupancy(group=1, n_groups=2, spare_blocks=0, interleave=shape.interleave)

        def launch(blocks: int, *args: Any) -> None:
            kernel[(blocks,)](*args, **options)

    else:
        args = _example_args(key, schedule, side)
        args += tuple(descriptors(args[2].slots))
        blocks = resident_blocks(_compile(kernel, args, options), key.device)
        group = blocks_per_matrix(n_tiles, blocks)
        options["CONFIG"] = config = config._replace(GROUP=group)
        # The group size depends on how many blocks are resident, so the kernel is compiled twice.
        # It is launched directly: Triton's lookup by all arguments takes longer than the launch.
        compiled = _compile(kernel, args, options)
        blocks = min(blocks, resident_blocks(compiled, key.device))
        spare = blocks % group if key.for_hopper else 0
        occupancy = Occupancy(group, max(1, blocks // group), spare, shape.interleave)

        def launch(blocks: int, *args: Any) -> None:
            compiled[(blocks, 1, 1)](*args, config)

    return Plan(schedule, launch, descriptors, (n_slots, planes, side, side), occupancy)


class Scratch(NamedTuple):
    """Division of a batch, and memory for matrices in flight. Consecutive launches reuse it."""

    partition: Partition
    slots: Tensor
    partials: Tensor
    results: Tensor
    descriptors: list[Any]  # TMA descriptors of the slots


def _allocate(chosen: Plan, out: Tensor) -> Scratch:
    batch, n_tiles, block, _ = out.shape
    division = partition(batch, n_tiles, chosen.occupancy)
    in_flight = division.matrices_in_flight
    slots = torch.empty((in_flight, *chosen.slots_shape), dtype=torch.float16, device=out.device)
    partials, results = out.new_empty((in_flight, 2, n_tiles)), out.new_empty((in_flight, n_tiles, 2, block * block))
    return Scratch(division, slots, partials, results, chosen.descriptors(slots))


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
    shared: dict[Occupancy, Scratch] | None = None,
) -> tuple[Tensor, Tensor]:
    """Launch the iteration, or with a cotangent its backward pass, for tiled matrices of D rows.

    Args:
        source: Symmetric matrices.
        D: Their number of rows.
        n_iter: Newton–Schulz steps, at most :data:`schedule.MAX_STEPS`.
        kind: ``"inverse"``, ``"sqrt"`` or ``"inverse_sqrt"``; the last takes at least two steps.
        precision: A key of :data:`schedule.PLANES`.
        shift: Added to the diagonal first.
        cotangent: Symmetric cotangent of the result, or of the next S if there is a ``step``.
        norms: Upper bounds on the norms of the cotangents (B,).
        step: A step of iSICE with the inverse of ``source`` as ∇₁.
        out: Where to put the result.
        counters: Zeros (int32), at least one per matrix in flight; the launch changes them.
        shared: Scratch memory of earlier calls with the same sizes, all forward or all backward;
            new memory is added to it.

    Returns:
        Tiled matrices and bounds (B,) on their norms. Forward: the result, or the next S if there
        is a ``step``; the bounds are not set. Backward: the cotangent of ``source``.
    """
    batch, derivative, device = len(source), cotangent is not None, source.device
    out = source.new_empty(tiled_shape(batch, D)) if out is None else out
    moments = derivative and step is not None and step.moments is not None
    for_hopper = D > 64 and has_hopper_kernel(device)
    chosen = plan(KernelKey(device, D, n_iter, kind, precision, derivative, step is not None, moments, for_hopper))
    out_norms = source.new_empty(batch)
    if not batch:
        return out, out_norms
    if cotangent is None:
        cotangent = norms = source
    elif norms is None:
        norms = norms_of(cotangent)
    # Kernels do not read the arguments that a launch does not need; any tensor will do.
    step = Step(*(source,) * 4) if step is None else step
    d_sigma, step_moments = (source if value is None else value for value in (step.d_sigma, step.moments))
    shared = {} if shared is None else shared
    if chosen.occupancy not in shared:
        shared[chosen.occupancy] = _allocate(chosen, out)
    (n_blocks, remainder, in_flight), slots, partials, results, descriptors = shared[chosen.occupancy]
    if counters is None:
        counters = torch.zeros(in_flight, dtype=torch.int32, device=device)
    chosen.launch(
        n_blocks,
        Operands(source, cotangent, norms, out, out_norms),
        step._replace(d_sigma=d_sigma, moments=step_moments),
        Workspace(slots, partials, results, counters),
        chosen.schedule,
        Problem(batch - remainder, remainder, D, chosen.slots_shape[-1], shift),
        *descriptors,
    )
    return out, out_norms
