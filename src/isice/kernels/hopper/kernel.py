"""The Newton–Schulz kernel for Hopper GPUs, in Gluon.

It computes the schedule of the portable kernel on the same slots, with four differences. A producer
warp copies factors by TMA and waits for the group, while the consumer warps wait for data only.
MMAs are asynchronous. Slots hold the tiles on and above the diagonal only. A group may interleave
several matrices: it works on one while its blocks synchronise on another.
"""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from ..epilogue import DIRECTION_NORM, Lanes, epilogue, load_scalars, prologue, tile_pointers, trace_factor, trace_of
from ..gemm import load_stage, load_tile, store_stage
from ..layout import diagonal_offsets, tile_corner
from .gemm import WARPS, multiply
from .pipeline import Ring, arrive, producer, share, wait_for

_PRODUCER_REGISTERS: gl.constexpr = gl.constexpr(24)
# Tiles are loaded and stored with eight threads for each row and 16 bytes of
# a plane for each thread.
_TILE: gl.constexpr = gl.constexpr(gl.BlockedLayout([1, 8], [4, 8], [WARPS, 1], [1, 0]))
_LINE: gl.constexpr = gl.constexpr(gl.BlockedLayout([1], [32], [WARPS], [0]))


@gluon.jit
def _lanes(ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    return Lanes(gl.arange(0, ROWS, gl.SliceLayout(1, _TILE)), gl.arange(0, COLUMNS, gl.SliceLayout(0, _TILE)))


@gluon.jit
def _load_trace(source, problem, CONFIG: gl.constexpr):
    index = gl.arange(0, triton.next_power_of_2(CONFIG.SIDE), _LINE)
    at = source + diagonal_offsets(index, CONFIG.SIDE // CONFIG.BLOCK, CONFIG.BLOCK)
    return trace_of(gl.load(at, mask=index < problem.D, other=0.0), problem.D, problem.shift)


@gluon.jit
def _slots(workspace, index, CONFIG: gl.constexpr):
    """Return the slots of a matrix in flight."""
    return workspace.slots + index.to(gl.int64) * (CONFIG.N_SLOTS * CONFIG.PLANES * CONFIG.SIDE * CONFIG.SIDE)


@gluon.jit
def _result(workspace, index, tile, CONFIG: gl.constexpr):
    return workspace.results + (index * CONFIG.N_TILES + tile) * (2 * CONFIG.BLOCK * CONFIG.BLOCK)


@gluon.jit
def _first(image, CONFIG: gl.constexpr):
    """Offset of a matrix in tiled matrices."""
    return image.to(gl.int64) * (CONFIG.N_TILES * CONFIG.BLOCK * CONFIG.BLOCK)


@gluon.jit
def _store_inputs(operands, step, workspace, schedule, problem, image, index, arrivals, part, CONFIG: gl.constexpr):
    """Prologue of the block's tiles of a matrix."""
    first, counter = _first(image, CONFIG), workspace.counters + index
    trace = _load_trace(operands.source + first, problem, CONFIG)
    scalars = load_scalars(step, operands.norms, image, CONFIG)
    to_norm = DIRECTION_NORM / scalars.direction_norm
    if not CONFIG.DERIVATIVE:
        wait_for(counter, arrivals)  # until no block reads the slots of the previous matrix
    for tile in range(part.rank, CONFIG.N_TILES, part.size):
        corner = tile_corner(tile, CONFIG.SIDE // CONFIG.BLOCK, CONFIG.BLOCK)
        pointers = tile_pointers(operands, step, first + tile * (CONFIG.BLOCK * CONFIG.BLOCK))
        prologue(
            _slots(workspace, index, CONFIG), pointers, scalars.rate, trace, schedule.scale,
            to_norm * schedule.scale * schedule.derivative_scale, corner, _lanes(CONFIG.BLOCK, CONFIG.BLOCK), False,
            problem, CONFIG,
        )  # fmt: skip
    arrive(counter)


@gluon.jit
def _run_stage(stage, workspace, index, ring, buffer, phase, part, CONFIG: gl.constexpr):
    """One stage on the block's tiles of a matrix."""
    for tile in range(part.rank, CONFIG.N_TILES, part.size):
        corner = tile_corner(tile, CONFIG.SIDE // CONFIG.BLOCK, CONFIG.BLOCK)
        slots, lanes = _slots(workspace, index, CONFIG), _lanes(CONFIG.BLOCK, CONFIG.BLOCK)
        left = load_tile(slots, stage.left, corner, lanes, CONFIG)  # arrives while the MMAs run
        total, d_total, buffer, phase = multiply(ring, buffer, phase, corner, CONFIG)
        total, d_total = gl.convert_layout(total, _TILE), gl.convert_layout(d_total, _TILE)
        result = _result(workspace, index, tile, CONFIG)
        store_stage(total, d_total, left, slots, result, stage, corner, lanes, False, CONFIG)
    # After the last stage of a derivative, blocks arrive with their partial sums instead.
    if stage.next_waits != 0 and not (stage.last and CONFIG.DERIVATIVE):
        arrive(workspace.counters + index)
    return buffer, phase


@gluon.jit
def _store_outputs(operands, step, workspace, schedule, problem, image, index, part, CONFIG: gl.constexpr):
    """Epilogue of the block's tiles of a matrix."""
    N_TILES: gl.constexpr = CONFIG.N_TILES
    BLOCK: gl.constexpr = CONFIG.BLOCK
    STRIP: gl.constexpr = CONFIG.STRIP
    first = _first(image, CONFIG)
    trace = _load_trace(operands.source + first, problem, CONFIG)
    scalars = load_scalars(step, operands.norms, image, CONFIG)
    for tile in range(part.rank, N_TILES, part.size):
        corner = tile_corner(tile, CONFIG.SIDE // BLOCK, BLOCK)
        pointers = tile_pointers(operands, step, first + tile * (BLOCK * BLOCK))
        zeros = gl.zeros((STRIP, BLOCK), gl.float32, _TILE)
        along, square, d_rate, d_lam = epilogue(
            _result(workspace, index, tile, CONFIG), pointers, scalars, trace, schedule.derivative_scale, corner,
            _lanes(STRIP, BLOCK), zeros, problem, CONFIG,
        )  # fmt: skip
        if CONFIG.DERIVATIVE:
            twice, partial = gl.where(corner.on_diagonal, 1.0, 2.0), workspace.partials + index * (2 * N_TILES) + tile
            gl.store(partial, twice * along)
            gl.store(partial + N_TILES, twice * square)
            if CONFIG.MOMENTS:
                moment = step.moments + (image.to(gl.int64) * N_TILES + tile) * 2
                gl.store(moment, twice * d_rate)
                gl.store(moment + 1, twice * d_lam)
    if CONFIG.DERIVATIVE:
        arrive(workspace.counters + index)


@gluon.jit
def _add_trace_cotangent(
    operands, step, workspace, problem, image, index, arrivals, part, CONFIG: gl.constexpr
):  # fmt: skip
    """Add the cotangent of the trace to the diagonal, after the partial sums of all tiles."""
    N_TILES: gl.constexpr = CONFIG.N_TILES
    BLOCK: gl.constexpr = CONFIG.BLOCK
    first = _first(image, CONFIG)
    trace = _load_trace(operands.source + first, problem, CONFIG)
    wait_for(workspace.counters + index, arrivals)
    every = gl.arange(0, triton.next_power_of_2(N_TILES), _LINE)
    partial = workspace.partials + index * (2 * N_TILES) + every
    along = gl.sum(gl.load(partial, mask=every < N_TILES, other=0.0, cache_modifier=".cg"))
    square = gl.sum(gl.load(partial + N_TILES, mask=every < N_TILES, other=0.0, cache_modifier=".cg"))
    change = trace.has_variance * along * trace_factor(trace, CONFIG.POWER) / trace.value
    scalars = load_scalars(step, operands.norms, image, CONFIG)
    if part.rank == 0:
        norm = scalars.cotangent_norm * gl.sqrt(square) + gl.abs(change) * gl.sqrt(problem.D * 1.0)
        gl.store(operands.out_norms + image, norm)
    for tile in range(part.rank, N_TILES, part.size):
        corner = tile_corner(tile, CONFIG.SIDE // BLOCK, BLOCK)
        if corner.on_diagonal:
            line = gl.arange(0, BLOCK, _LINE)
            diagonal = operands.out + first + tile * (BLOCK * BLOCK) + line * (BLOCK + 1)
            gl.store(diagonal, gl.load(diagonal) + change, mask=line < problem.D - corner.row)


@gluon.jit
def _consumer(operands, step, workspace, schedule, problem, ring, part, CONFIG: gl.constexpr):
    """Do everything but copy factors. Each matrix in flight has its own slots and counter."""
    INTERLEAVE: gl.constexpr = CONFIG.INTERLEAVE
    arrivals, buffer, phase = 0, 0, 0
    for first_image in range(part.begin, part.end, part.stride * INTERLEAVE):
        for i in range(0, INTERLEAVE):
            image, index = first_image + i * part.stride, part.index + i * part.stride
            if image < part.end:
                _store_inputs(operands, step, workspace, schedule, problem, image, index, arrivals, part, CONFIG)
        arrivals += part.size

        for index_of_stage in range(0, schedule.n_stages):
            stage = load_stage(schedule, index_of_stage)
            for i in range(0, INTERLEAVE):
                if first_image + i * part.stride < part.end:
                    index = part.index + i * part.stride
                    buffer, phase = _run_stage(stage, workspace, index, ring, buffer, phase, part, CONFIG)
            arrivals += part.size * stage.next_waits

        tl.debug_barrier()
        for i in range(0, INTERLEAVE):
            image, index = first_image + i * part.stride, part.index + i * part.stride
            if image < part.end:
                _store_outputs(operands, step, workspace, schedule, problem, image, index, part, CONFIG)

        if CONFIG.DERIVATIVE:
            for i in range(0, INTERLEAVE):
                image, index = first_image + i * part.stride, part.index + i * part.stride
                if image < part.end:
                    _add_trace_cotangent(operands, step, workspace, problem, image, index, arrivals, part, CONFIG)


@gluon.jit
def iterate(operands, step, workspace, schedule, problem, direct, transposed, CONFIG: gl.constexpr):
    """Do as ``portable.iterate``, with the two :func:`descriptors` of the slots."""
    part = share(
        gl.program_id(0), gl.num_programs(0), problem.batch, problem.remainder, CONFIG.GROUP, CONFIG.INTERLEAVE
    )
    DEPTH: gl.constexpr = CONFIG.DEPTH
    N_BUFFERS: gl.constexpr = DEPTH * (4 if CONFIG.DERIVATIVE else 2) * CONFIG.PLANES
    # Allocated in the layout of ``transposed``, which has the larger alignment.
    tiles = gl.allocate_shared_memory(transposed.dtype, [N_BUFFERS, CONFIG.BLOCK_K, CONFIG.BLOCK], transposed.layout)
    full = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(DEPTH):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    ring, counters = Ring(tiles, full, empty), workspace.counters
    gl.warp_specialize(
        [
            (_consumer, (operands, step, workspace, schedule, problem, ring, part, CONFIG)),
            (producer, (direct, transposed, schedule.stages, schedule.n_stages, counters, ring, part, CONFIG)),
        ],
        [1], [_PRODUCER_REGISTERS],
    )  # fmt: skip


def descriptors(slots: Tensor, config: Any) -> list[Any]:
    """TMA descriptors of the slots as one matrix: tiles as they are stored, and transposed."""
    matrix, shapes = slots.view(-1, config.SIDE), ([config.BLOCK, config.BLOCK_K], [config.BLOCK_K, config.BLOCK])
    layouts = [gl.NVMMASharedLayout.get_default_for(shape, gl.float16) for shape in shapes]
    pairs = zip(shapes, layouts, strict=True)
    return [TensorDescriptor.from_tensor(matrix, shape, layout) for shape, layout in pairs]
