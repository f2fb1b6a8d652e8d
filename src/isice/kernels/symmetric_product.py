"""Batched products of symmetric matrices that commute: half of each product is computed, the other half mirrored.

One launch computes a group of outputs, each α(AB + CD) + βE + γI, for every matrix of the batch. The matrices live in
the slots of one workspace (slots, B, D, D) in float32; a table says which slots an output reads and writes.
"""

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

# How float32 operands enter a product: rounded to TF32, as three products of bfloat16 halves, or as they are.
PRECISIONS = {"tf32": 0, "bf16x3": 1, "ieee": 2}


@triton.jit
def _dot(a, b, acc, MODE: tl.constexpr):
    if MODE == 1:
        a_high, b_high = a.to(tl.bfloat16), b.to(tl.bfloat16)
        a_low = (a - a_high.to(tl.float32)).to(tl.bfloat16)
        b_low = (b - b_high.to(tl.float32)).to(tl.bfloat16)
        acc = tl.dot(a_low, tl.trans(b_high), acc)
        acc = tl.dot(a_high, tl.trans(b_low), acc)
        acc = tl.dot(a_high, tl.trans(b_high), acc)
    elif MODE == 0:
        acc = tl.dot(a, tl.trans(b), acc, input_precision="tf32")
    else:
        acc = tl.dot(a, tl.trans(b), acc, input_precision="ieee")
    return acc


@triton.jit
def _group_product(
    workspace,  # (slots, B, D, D)
    slots,  # (outputs, 6) int32: out, a, b, c, d, e
    factors,  # (outputs, 4) float32: α, β, γ, number of products
    tiles,  # (tiles, 2) int32: block row ≤ block column
    n_tiles,
    n_outputs,
    batch,
    D,
    BLOCK: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN: tl.constexpr,
    MODE: tl.constexpr,
):
    pid = tl.program_id(0)
    tile, rest = pid % n_tiles, pid // n_tiles
    output, image = rest % n_outputs, rest // n_outputs
    block_row, block_column = tl.load(tiles + 2 * tile), tl.load(tiles + 2 * tile + 1)
    size = D.to(tl.int64) * D
    slot_size = size * batch
    matrix = workspace + image.to(tl.int64) * size
    a, b = tl.load(slots + 6 * output + 1), tl.load(slots + 6 * output + 2)
    c, d = tl.load(slots + 6 * output + 3), tl.load(slots + 6 * output + 4)
    n_products = tl.load(factors + 4 * output + 3).to(tl.int32)

    rows = block_row * BLOCK + tl.arange(0, BLOCK)
    columns = block_column * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, BLOCK_K)
    steps = tl.cdiv(D, BLOCK_K)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for step in range(0, n_products * steps):
        first = step < steps
        left = matrix + tl.where(first, a, c).to(tl.int64) * slot_size
        right = matrix + tl.where(first, b, d).to(tl.int64) * slot_size
        k = (step % steps) * BLOCK_K + inner
        # The right matrix is symmetric: its rows stand for its columns, so both operands are read along memory.
        if EVEN:
            x = tl.load(left + rows[:, None] * D + k[None, :])
            y = tl.load(right + columns[:, None] * D + k[None, :])
        else:
            x = tl.load(left + rows[:, None] * D + k[None, :], mask=(rows[:, None] < D) & (k[None, :] < D), other=0.0)
            y = tl.load(
                right + columns[:, None] * D + k[None, :], mask=(columns[:, None] < D) & (k[None, :] < D), other=0.0
            )
        acc = _dot(x, y, acc, MODE)

    alpha, beta, gamma = (
        tl.load(factors + 4 * output),
        tl.load(factors + 4 * output + 1),
        tl.load(factors + 4 * output + 2),
    )
    inside = (rows[:, None] < D) & (columns[None, :] < D)
    place = rows[:, None] * D + columns[None, :]
    value = alpha * acc + tl.where(rows[:, None] == columns[None, :], gamma, 0.0)
    if beta != 0.0:
        added = matrix + tl.load(slots + 6 * output + 5).to(tl.int64) * slot_size
        value += beta * tl.load(added + place, mask=inside, other=0.0)
    if block_row == block_column:
        value = 0.5 * (value + tl.trans(value))
    out = matrix + tl.load(slots + 6 * output).to(tl.int64) * slot_size
    tl.store(out + place, value, mask=inside)
    if block_row != block_column:
        mirrored = columns[:, None] * D + rows[None, :]
        tl.store(out + mirrored, tl.trans(value), mask=(columns[:, None] < D) & (rows[None, :] < D))


def launch_shape(D: int) -> tuple[int, int, int, int]:
    """Side of a tile, depth of a step, warps and stages. Small tiles leave out more of the mirrored half."""
    block = 64 if D > 64 else max(16, triton.next_power_of_2(D) // (2 if D > 32 else 1))
    return block, 32, 4, 3


@functools.lru_cache(maxsize=64)
def _tile_table(n_blocks: int, device: torch.device) -> Tensor:
    pairs = [(row, column) for row in range(n_blocks) for column in range(row, n_blocks)]
    return torch.tensor(pairs, dtype=torch.int32, device=device)


def group_product(workspace: Tensor, slots: Tensor, factors: Tensor, precision: str) -> None:
    """Computes one group of outputs, in place in the workspace; see the top of this file for the tables."""
    _, batch, D, _ = workspace.shape
    block, block_k, warps, stages = launch_shape(D)
    tiles = _tile_table(triton.cdiv(D, block), workspace.device)
    grid = (len(tiles) * len(slots) * batch,)
    even = D % block == 0 and D % block_k == 0
    _group_product[grid](
        workspace, slots, factors, tiles, len(tiles), len(slots), batch, D,
        BLOCK=block, BLOCK_K=block_k, EVEN=even, MODE=PRECISIONS[precision], num_warps=warps, num_stages=stages,
    )  # fmt: skip
