"""How the iteration is launched: which kernel, sizes of tiles, how many blocks share a matrix, what a call needs."""

import functools
import os
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from . import newton_schulz
from .ends import norms_of
from .program import PLANES_OF, SLOTS, Program, block_of, program, tiled_shape, tiling

hopper: ModuleType | None
try:
    from . import hopper
except (ImportError, AttributeError):  # its language is young, and may go another way
    hopper = None

_POWER = {"inverse": -1.0, "sqrt": 0.5, "inverse_sqrt": -0.5}
# Triton's interpreter runs the blocks one after the other: none may wait for another.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
_STRIP = 16  # rows of a tile that are in work at once, after the products
_REGISTERS = 128  # of a thread of the kernel for Hopper GPUs, on average: two blocks of eight warps share all


class Shape(NamedTuple):
    """Sizes of a launch."""

    block_k: int  # depth of a step of a product
    depth: int  # steps of a product in flight
    chains: int = 0  # matrices that a group carries in turn, with the kernel for Hopper GPUs; 0 with the other


class Step(NamedTuple):
    """What a step of iSICE needs beside S: tiled matrices and per-image values (B,)."""

    sigma: Tensor
    eta: Tensor
    lam: Tensor
    alive: Tensor  # int8: which parts are positive; written on the way forward, read on the way back
    beta: float = 1.0  # times η is the rate of this step
    d_sigma: Tensor | None = None  # the way back adds to it
    moments: Tensor | None = None  # (B, tiles, 2): for the cotangents of rate and λ, summed by tile, on the way back


def shape_of(D: int, planes: int, derivative: bool, for_hopper: bool) -> Shape:
    """The sizes that were fastest on an H200."""
    if not for_hopper:
        block_k = 32 if derivative and planes == 2 else 64
        return Shape(min(block_k, block_of(D)), 3 if not derivative or planes == 2 else 2)
    if planes == 1:
        return Shape(64, 3 if derivative else 4, chains=2)
    if derivative:  # whose slots would not fit into the second cache level twice
        return Shape(32, 3, chains=1)
    return Shape(64, 3, chains=2)


def blocks_per_matrix(n_tiles: int, at_once: int) -> int:
    """How many blocks share a matrix on a GPU that holds ``at_once`` of them.

    One for each tile leaves few matrices in work, whose slots the second cache level holds. Where that would leave many
    blocks without work, as with a matrix that has more tiles than half of them, a block takes several tiles.
    """
    groups = {k: -(-n_tiles // k) for k in (1, 2, 3, 4)}
    rates = {k: at_once // group / k for k, group in groups.items()}
    enough = 0.8 * max(rates.values())
    return next((groups[k] for k, rate in rates.items() if rate and rate >= enough), min(n_tiles, at_once))


class Crew(NamedTuple):
    """The blocks that a GPU holds at once."""

    group: int  # that share a matrix
    resident: int  # groups
    spare: int  # blocks beside them that the kernel can use
    chains: int  # matrices that a group carries in turn; 0 with the kernel that knows no chains


class Division(NamedTuple):
    """Who carries the matrices of a batch."""

    n_blocks: int
    left: int  # matrices that the blocks beside the groups carry
    places: int  # how many matrices are in work at once, at most


def divide(batch: int, n_tiles: int, crew: Crew) -> Division:
    """Leaves matrices of an incomplete last round to the blocks beside the groups if they are ready before those."""
    group, resident, spare, chains = crew
    groups = min(batch, resident)
    rounds, left = divmod(batch, groups)
    if not spare or left * -(-n_tiles // spare) > rounds * -(-n_tiles // group):
        left = 0
    places = min(batch - left, groups * max(1, chains)) + min(left, chains)
    return Division(groups * group + (spare if left else 0), left, places)


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
    for_hopper: bool


class Plan(NamedTuple):
    """What is fixed for a kind of call."""

    program: Program
    launch: Callable[..., None]  # takes the number of blocks and the arguments that vary
    describe: Callable[[Tensor, int], Sequence[Any]]  # the arguments of one kernel only, given workspace and `left`
    slots: tuple[int, ...]  # the shape of what a matrix needs of the workspace
    crew: Crew


class Room(NamedTuple):
    """Where the blocks of a launch work. Launches that follow each other may share it."""

    division: Division
    workspace: Tensor  # slots of each place
    described: Sequence[Any]
    partials: Tensor  # two sums for each tile
    results: Tensor  # tiles of the result, and of its derivative


def _compiled(kernel: Any, call: Call, options: dict[str, Any], describe: Callable) -> Any:
    single, whole = torch.float32, torch.int32
    matrices = (single,) * 6 + (torch.int8 if call.step else single,) + (single,) * 4
    workspace = torch.empty(options["SIDE"], options["SIDE"], dtype=torch.float16, device=call.device)
    of_groups = (torch.float16, *describe(workspace, 0), single, whole, single)
    numbers = (whole, single, 1, 256, 8, 0.0, 1.0, 1.0)
    found = kernel.warmup(*matrices, 1.0, *of_groups, *numbers, grid=(1,), **options)
    found._init_handles()
    return found


def _resident_blocks(compiled: Any, device: torch.device) -> int:
    """How many blocks the GPU holds at once."""
    properties, threads = torch.cuda.get_device_properties(device), 32 * compiled.metadata.num_warps
    by_registers = properties.regs_per_multiprocessor // (-(-compiled.n_regs // 8) * 8 * threads)
    by_memory = properties.shared_memory_per_multiprocessor // (compiled.metadata.shared + 1024)
    by_threads = properties.max_threads_per_multi_processor // threads
    return max(1, min(by_registers, by_memory, by_threads)) * properties.multi_processor_count


@functools.lru_cache(maxsize=8)
def has_hopper_kernel(device: torch.device) -> bool:
    """Whether the kernel for Hopper GPUs runs on this one."""
    return hopper is not None and not INTERPRETED and torch.cuda.get_device_properties(device).major == 9


@functools.lru_cache(maxsize=256)
def plan(call: Call) -> Plan:
    """Sizes, options and program of a kind of call; the first time, its kernel is compiled."""
    try:
        return _plan(call)
    except Exception as error:  # of the compiler and its passes, each with errors of their own
        if not call.for_hopper or isinstance(error, torch.OutOfMemoryError):
            raise
        warnings.warn(
            f"isice: the kernel for Hopper GPUs does not compile with Triton {triton.__version__} (it was tried with "
            f"3.6 and 3.9), and a slower one is used: {error}",
            stacklevel=2,
        )
        return _plan(call._replace(for_hopper=False))


def uses_hopper_kernel(device: torch.device, precision: str) -> bool:
    """Whether the kernel for Hopper GPUs is used on this one; both ways are compiled to know it, which takes seconds.

    An error is that of the kernels for every GPU, which do not compile either.
    """
    if not has_hopper_kernel(device):
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plans = [plan(Call(device, 128, 7, "inverse", precision, way, False, False, True)) for way in (False, True)]
    return all(tried.crew.chains > 0 for tried in plans)


def _plan(call: Call) -> Plan:
    steps, planes = program(call.n_iter, call.kind, call.D, call.device), PLANES_OF[call.precision]
    block, n_blocks, n_tiles = tiling(call.D)
    side, sizes = n_blocks * block, shape_of(call.D, planes, call.derivative, call.for_hopper)
    n_slots = SLOTS * (1 + call.derivative)
    options: dict[str, Any] = {
        "POWER": _POWER[call.kind], "DERIVATIVE": call.derivative, "STEP": call.step,
        "MOMENTS": call.moments,
        "SIDE": side, "BLOCK": block, "BLOCK_K": sizes.block_k,
        "STRIP": min(block, _STRIP), "PLANES": planes, "N_TILES": n_tiles, "N_SLOTS": n_slots,
        "GROUP": 1 if INTERPRETED else n_tiles, "num_warps": 4,
        "launch_cooperative_grid": not INTERPRETED,
    }  # fmt: skip
    kernel: Any
    if call.for_hopper and hopper is not None:
        kernel, describe = hopper.iterate, hopper.describer(side, block, sizes.block_k)
        options |= {"CHAINS": sizes.chains, "DEPTH": sizes.depth, "maxnreg": _REGISTERS}
    else:
        kernel, describe = newton_schulz.iterate, lambda workspace, left: (side,)
        options["num_stages"] = sizes.depth
    if INTERPRETED:
        group, resident, spare = 1, 2, 0

        def launch(blocks: int, *args: Any) -> None:
            kernel[(blocks,)](*args, **options)

    else:
        blocks = _resident_blocks(_compiled(kernel, call, options, describe), call.device)
        group = options["GROUP"] = blocks_per_matrix(n_tiles, blocks)
        # To look up the compiled kernel anew for each launch, by all its arguments, takes longer than to launch it.
        compiled = _compiled(kernel, call, options, describe)
        blocks = min(blocks, _resident_blocks(compiled, call.device))
        resident, spare = max(1, blocks // group), blocks % group if call.for_hopper else 0
        constants = [options[name] for name in kernel.arg_names if name in options]

        def launch(blocks: int, *args: Any) -> None:
            compiled[(blocks, 1, 1)](*args, *constants)

    crew = Crew(group, resident, spare, sizes.chains)
    return Plan(steps, launch, describe, (n_slots, planes, side, side), crew)


def _room(fixed: Plan, out: Tensor) -> Room:
    batch, n_tiles, block, _ = out.shape
    division = divide(batch, n_tiles, fixed.crew)
    workspace = torch.empty((division.places, *fixed.slots), dtype=torch.float16, device=out.device)
    return Room(
        division, workspace, fixed.describe(workspace, division.left),
        out.new_empty((division.places, 2, n_tiles)), out.new_empty((division.places, n_tiles, 2, block * block)),
    )  # fmt: skip


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
    rooms: dict[Crew, Room] | None = None,
) -> tuple[Tensor, Tensor]:
    """The iteration, or with a cotangent its backward pass, for tiled matrices of D rows.

    Args:
        source: Symmetric matrices.
        D: How many rows they have.
        n_iter: Newton–Schulz steps, at most :data:`program.MOST_STEPS`.
        kind: ``"inverse"``, ``"sqrt"`` or ``"inverse_sqrt"``; an inverse root takes two steps or more.
        precision: A key of :data:`program.PLANES_OF`.
        shift: Added to the diagonal first.
        cotangent: Of the result, or with ``step`` of the next S; symmetric.
        norms: Its norm for each matrix (B,), or somewhat more.
        step: A step of iSICE with the inverse of ``source`` as ∇₁.
        out: Where to put the result.
        counters: As many zeros (int32) as there are matrices, which are then used up.
        rooms: Those of calls before with the same sizes, and with a cotangent or without as this one; a new one is
            added.

    Returns:
        The result, the next S, or the cotangent of ``source``, tiled; and a bound on the norms of the latter (B,).
    """
    batch, derivative, device = len(source), cotangent is not None, source.device
    out = source.new_empty(tiled_shape(batch, D)) if out is None else out
    moments = derivative and step is not None and step.moments is not None
    for_hopper = D > 64 and has_hopper_kernel(device)
    fixed = plan(Call(device, D, n_iter, kind, precision, derivative, step is not None, moments, for_hopper))
    next_norms = source.new_empty(batch)
    if not batch:
        return out, next_norms
    if norms is None:
        norms = source if cotangent is None else norms_of(cotangent)
    of_step: tuple[Any, ...] = (*(source,) * 6, 1.0)
    if step is not None:
        of_step = (step.sigma, step.alive, step.eta, step.lam, step.d_sigma, step.moments, step.beta)
        of_step = tuple(source if value is None else value for value in of_step)
    steps, room = fixed.program, None if rooms is None else rooms.get(fixed.crew)
    if room is None:
        room = _room(fixed, out)
        if rooms is not None:
            rooms[fixed.crew] = room
    n_blocks, left, places = room.division
    if counters is None:
        counters = torch.zeros(places, dtype=torch.int32, device=device)
    fixed.launch(
        n_blocks, source, source if cotangent is None else cotangent, norms, out, next_norms, *of_step,
        room.workspace, *room.described, room.partials, counters, room.results,
        steps.slots, steps.weights, len(steps.slots), batch - left, D, shift, steps.scale,
        steps.derivative_scale,
    )  # fmt: skip
    return out, next_norms
