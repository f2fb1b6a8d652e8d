"""Pipeline sizes of the iteration kernels, resident blocks, and the division of a batch."""

from typing import Any, NamedTuple

import torch

from .layout import tile_side


class PipelineShape(NamedTuple):
    """Sizes of the software pipeline of a GEMM."""

    block_k: int  # depth of a k-slice
    depth: int  # k-slices in flight
    interleave: int = 0  # matrices that a group works on in turn, Hopper only


class Occupancy(NamedTuple):
    """Blocks that are resident on a GPU at once."""

    group: int  # blocks that share a matrix
    n_groups: int
    spare_blocks: int  # too few for another group; used by the Hopper kernel
    interleave: int  # matrices that a group works on in turn; 0 for the portable kernel


class Partition(NamedTuple):
    """Division of a batch among the resident blocks."""

    n_blocks: int
    remainder: int  # matrices of the spare blocks
    matrices_in_flight: int


def pipeline_shape(D: int, planes: int, derivative: bool, for_hopper: bool) -> PipelineShape:
    """Return the sizes that were fastest on an H200."""
    if not for_hopper:
        block_k = 32 if derivative and planes == 2 else 64
        return PipelineShape(min(block_k, tile_side(D)), 3 if not derivative or planes == 2 else 2)
    if planes == 1:
        return PipelineShape(64, 3 if derivative else 4, interleave=2)
    if derivative:  # The slots of two matrices for each group would exceed the L2 cache.
        return PipelineShape(32, 3, interleave=1)
    return PipelineShape(64, 3, interleave=2)


def resident_blocks(compiled: Any, device: torch.device) -> int:
    """Return how many blocks of a compiled kernel the GPU holds at once."""
    properties, threads = torch.cuda.get_device_properties(device), 32 * compiled.metadata.num_warps
    by_registers = properties.regs_per_multiprocessor // (-(-compiled.n_regs // 8) * 8 * threads)
    by_memory = properties.shared_memory_per_multiprocessor // (compiled.metadata.shared + 1024)
    by_threads = properties.max_threads_per_multi_processor // threads
    return max(1, min(by_registers, by_memory, by_threads)) * properties.multi_processor_count


def blocks_per_matrix(n_tiles: int, n_resident: int) -> int:
    """Return how many of ``n_resident`` blocks share a matrix.

    One block for each tile keeps few matrices in flight, whose slots fit the L2 cache. Where
    that leaves many blocks idle, as for a matrix with more tiles than half the blocks, a
    block takes several tiles.
    """
    groups = {k: -(-n_tiles // k) for k in (1, 2, 3, 4)}
    rates = {k: n_resident // group / k for k, group in groups.items()}
    enough = 0.8 * max(rates.values())
    return next((groups[k] for k, rate in rates.items() if rate and rate >= enough), min(n_tiles, n_resident))


def partition(batch: int, n_tiles: int, occupancy: Occupancy) -> Partition:
    """Divide a batch; spare blocks take a partial last round if that takes no longer."""
    group, n_groups, spare, interleave = occupancy
    groups = min(batch, n_groups)
    rounds, remainder = divmod(batch, groups)
    if not spare or remainder * -(-n_tiles // spare) > rounds * -(-n_tiles // group):
        remainder = 0
    in_flight = min(batch - remainder, groups * max(1, interleave)) + min(remainder, interleave)
    return Partition(groups * group + (spare if remainder else 0), remainder, in_flight)
