"""Launcher of iSICE: trace normalisation, one launch for each step, packing; and backward."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .epilogue import trace_of
from .layout import (
    diagonal_offsets,
    image_and_tile,
    load_packed,
    matrix_offsets,
    store_symmetric,
    tile_corner,
    tile_indices,
    tiled_shape,
    tiling,
)
from .newton_schulz import Scratch, Step, run
from .occupancy import Occupancy

_CHUNK = 4096


class Settings(NamedTuple):
    """Options of Alg. 2 that are plain values."""

    betas: list[float]  # β of each step; those with β = 0 are left out
    n_inverse_iter: int
    power: float  # the output is divided by this power of its trace
    alpha: float
    precision: str


class Saved(NamedTuple):
    """The result, and what the backward pass needs; matrices are tiled."""

    out: Tensor  # (B, D(D+1)/2)
    out_trace: Tensor  # (B, 2): trace of the last S, whether it has variance
    sigma: Tensor  # Σ/tr Σ
    cov_trace: Tensor  # (B, 2): trace of Σ, whether it has variance
    steps: Tensor  # (steps, B, …): S before each step
    positive_mask: Tensor  # (steps, B, …) int8, as of :class:`newton_schulz.Step`


@triton.jit
def _power(value, exponent):
    return tl.exp2(exponent * tl.log2(value))


@triton.jit
def _normalize_trace(cov, sigma, traces, D, SPAN: tl.constexpr, TILING: tl.constexpr):
    image, tile, first = image_and_tile(TILING)
    cov += image * D * D
    index = tl.arange(0, SPAN)
    trace = trace_of(tl.load(cov + index * (D + 1), mask=index < D, other=0.0), D, 0.0)
    tl.store(traces + 2 * image, trace.value)
    tl.store(traces + 2 * image + 1, trace.has_variance)
    at = tile_indices(tile, D, TILING)
    value = tl.load(cov + matrix_offsets(at.rows, at.columns, D, False), mask=at.inside, other=0.0) / trace.value
    value += tl.where(at.diagonal & at.inside, (1.0 - trace.has_variance) / D, 0.0)
    tl.store(sigma + first + at.offsets, value)


@triton.jit
def _pack(s, out, traces, power, D, SPAN: tl.constexpr, TILING: tl.constexpr):
    image, tile, first = image_and_tile(TILING)
    index = tl.arange(0, SPAN)
    diagonal = s + (first - tile * (TILING.BLOCK * TILING.BLOCK))
    diagonal += diagonal_offsets(index, TILING.N_BLOCKS, TILING.BLOCK)
    trace = trace_of(tl.load(diagonal, mask=index < D, other=0.0), D, 0.0)
    tl.store(traces + 2 * image, trace.value)
    tl.store(traces + 2 * image + 1, trace.has_variance)
    at = tile_indices(tile, D, TILING)
    value = tl.load(s + first + at.offsets) * _power(trace.value, -power)
    upper = at.inside & (at.rows[:, None] <= at.columns[None, :])
    tl.store(out + image * (D * (D + 1) // 2) + matrix_offsets(at.rows, at.columns, D, True), value, mask=upper)


@triton.jit
def _pack_sums(grad, out, sums, D, n_sums, CHUNK: tl.constexpr):
    """Store ⟨grad, out⟩ and ‖grad‖ of a chunk; float64 squares of the norm cannot overflow."""
    image, chunk, size = (tl.program_id(0) // n_sums).to(tl.int64), tl.program_id(0) % n_sums, D * (D + 1) // 2
    index = chunk * CHUNK + tl.arange(0, CHUNK)
    cotangent = tl.load(grad + image * size + index, mask=index < size, other=0.0)
    value = tl.load(out + image * size + index, mask=index < size, other=0.0)
    sums += (image * n_sums + chunk) * 2
    tl.store(sums, tl.sum(cotangent * value))
    tl.store(sums + 1, tl.sqrt(tl.sum(cotangent.to(tl.float64) * cotangent.to(tl.float64))).to(tl.float32))


@triton.jit
def _pack_vjp(grad, sums, traces, d_s, norms, power, D, n_sums, SPAN: tl.constexpr, TILING: tl.constexpr):
    image, tile, first = image_and_tile(TILING)
    trace, has_variance = tl.load(traces + 2 * image), tl.load(traces + 2 * image + 1)
    chunks = tl.arange(0, SPAN)
    sums += (image * n_sums + chunks) * 2
    along = tl.sum(tl.load(sums, mask=chunks < n_sums, other=0.0))
    norm = tl.load(sums + 1, mask=chunks < n_sums, other=0.0).to(tl.float64)
    factor = _power(trace, -power)
    shift = power * has_variance * along / trace
    norm = tl.sqrt(tl.sum(norm * norm)).to(tl.float32)
    tl.store(norms + image, factor * norm + tl.abs(shift) * tl.sqrt(D * 1.0))
    at = tile_indices(tile, D, TILING)
    cotangent = factor * load_packed(grad + image * (D * (D + 1) // 2), at, D)
    value = tl.where(at.diagonal, cotangent - shift, 0.5 * cotangent)
    tl.store(d_s + first + at.offsets, tl.where(at.inside, value, 0.0))


@triton.jit
def _trace_sums(d_sigma, d_first, sigma, sums, D, TILING: tl.constexpr):
    """Store ⟨sum of both cotangents, Σ'⟩ on a tile, doubled off the diagonal."""
    image, tile, first = image_and_tile(TILING)
    at = tile_indices(tile, D, TILING).offsets + first
    grad = tl.load(d_sigma + at) + tl.load(d_first + at)
    total = tl.sum(grad * tl.load(sigma + at))
    corner = tile_corner(tile, TILING.N_BLOCKS, TILING.BLOCK)
    tl.store(sums + image * TILING.N_TILES + tile, tl.where(corner.on_diagonal, 1.0, 2.0) * total)


@triton.jit
def _normalize_trace_vjp(d_sigma, d_first, sums, traces, d_cov, D, TILING: tl.constexpr):
    image, tile, first = image_and_tile(TILING)
    trace, has_variance = tl.load(traces + 2 * image), tl.load(traces + 2 * image + 1)
    every = tl.arange(0, triton.next_power_of_2(TILING.N_TILES))
    all_sums = tl.load(sums + image * TILING.N_TILES + every, mask=every < TILING.N_TILES, other=0.0)
    along = has_variance * tl.sum(all_sums)
    at = tile_indices(tile, D, TILING)
    offsets = at.offsets + first
    grad = (tl.load(d_sigma + offsets) + tl.load(d_first + offsets) - tl.where(at.diagonal, along, 0.0)) / trace
    store_symmetric(d_cov + image * D * D, grad, at, D)


def normalize_trace(cov: Tensor) -> tuple[Tensor, Tensor]:
    """Tile Σ/tr Σ, or I/D without variance; also return (B, 2): trace, whether it is positive."""
    batch, D, _ = cov.shape
    sigma, traces = cov.new_empty(tiled_shape(batch, D)), cov.new_empty((batch, 2))
    if batch:
        grid, span = (sigma.shape[1] * batch,), triton.next_power_of_2(D)
        _normalize_trace[grid](cov, sigma, traces, D, SPAN=span, TILING=tiling(D))
    return sigma, traces


def normalize_trace_vjp(d_sigma: Tensor, d_first: Tensor, sigma: Tensor, traces: Tensor, D: int) -> Tensor:
    """Return the cotangent of Σ (B, D, D), given that of Σ/tr Σ as a sum of two tiled matrices."""
    d_cov, sums = sigma.new_empty((len(sigma), D, D)), sigma.new_empty(sigma.shape[:2])
    if len(sigma):
        grid = (sigma.shape[1] * len(sigma),)
        _trace_sums[grid](d_sigma, d_first, sigma, sums, D, TILING=tiling(D))
        _normalize_trace_vjp[grid](d_sigma, d_first, sums, traces, d_cov, D, TILING=tiling(D))
    return d_cov


def pack(s: Tensor, power: float, D: int) -> tuple[Tensor, Tensor]:
    """Pack S/tr(S)^power for tiles of S; also return (B, 2): trace, has variance."""
    out, traces = s.new_empty((len(s), D * (D + 1) // 2)), s.new_empty((len(s), 2))
    if len(s):
        _pack[(s.shape[1] * len(s),)](s, out, traces, power, D, SPAN=triton.next_power_of_2(D), TILING=tiling(D))
    return out, traces


def pack_vjp(grad: Tensor, out: Tensor, traces: Tensor, power: float, D: int) -> tuple[Tensor, Tensor]:
    """Tile the cotangent of S, given that of the packed ``out``; also return its norm's bound."""
    batch, n_sums = len(out), triton.cdiv(out.shape[1], _CHUNK)
    d_s, norms, sums = out.new_empty(tiled_shape(batch, D)), out.new_empty(batch), out.new_empty((batch, n_sums, 2))
    if batch:
        _pack_sums[(n_sums * batch,)](grad, out, sums, D, n_sums, CHUNK=_CHUNK)
        grid, span = (d_s.shape[1] * batch,), triton.next_power_of_2(n_sums)
        _pack_vjp[grid](grad, sums, traces, d_s, norms, power, D, n_sums, SPAN=span, TILING=tiling(D))
    return d_s, norms


def isice(cov: Tensor, lam: Tensor, eta: Tensor, settings: Settings) -> Saved:
    """Compute Alg. 2 for whole matrices (B, D, D) and per-image values (B,)."""
    betas, n_inverse_iter, power, alpha, precision = settings
    D, (sigma, cov_trace), counters = cov.shape[-1], normalize_trace(cov), _counters(cov, len(betas))
    inverse = _inverse(D, n_inverse_iter, precision, alpha)
    steps = sigma.new_empty((len(betas), *sigma.shape))
    masks = sigma.new_empty(steps.shape, dtype=torch.int8)
    matrices = [*steps, torch.empty_like(sigma)]
    inverse(sigma, out=matrices[0], counters=counters[-1])
    for i, beta in enumerate(betas):
        inverse(matrices[i], step=Step(sigma, eta, lam, masks[i], beta), out=matrices[i + 1], counters=counters[i])
    del inverse  # Release its workspace.
    return Saved(*pack(matrices[-1], power, D), sigma, cov_trace, steps, masks)


def isice_vjp(
    grad: Tensor, D: int, saved: Saved, lam: Tensor, eta: Tensor, settings: Settings, learned: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the cotangents of Σ (B, D, D), λ and η (B,), given that of the packed result.

    Those of λ and η are empty unless ``learned``.
    """
    betas, n_inverse_iter, power, alpha, precision = settings
    out, out_trace, sigma, cov_trace, steps, masks = saved
    inverse = _inverse(D, n_inverse_iter, precision, alpha)
    counters, moments = _counters(sigma, len(betas)), sigma.new_empty((len(betas), *sigma.shape[:2], 2))
    (d_s, norms), d_sigma = pack_vjp(grad, out, out_trace, power, D), torch.zeros_like(sigma)
    for i in reversed(range(len(betas))):
        step = Step(sigma, eta, lam, masks[i], betas[i], d_sigma, moments[i] if learned else None)
        d_s, norms = inverse(steps[i], cotangent=d_s, norms=norms, step=step, counters=counters[i])
    d_first, _ = inverse(sigma, cotangent=d_s, norms=norms, counters=counters[-1])
    del inverse  # Release its workspace.
    d_cov = normalize_trace_vjp(d_sigma, d_first, sigma, cov_trace, D)
    if not learned:
        return d_cov, lam.new_empty(0), eta.new_empty(0)
    d_lam, d_eta = torch.zeros_like(lam), torch.zeros_like(eta)
    for beta, sums in zip(betas, moments.sum(2), strict=True):
        d_eta.add_(sums[:, 0], alpha=beta)
        d_lam.add_(sums[:, 1])
    return d_cov, d_lam, d_eta


def _inverse(D: int, n_iter: int, precision: str, alpha: float) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return the inverse as a function whose launches share their scratch memory."""
    shared: dict[Occupancy, Scratch] = {}
    return functools.partial(run, D=D, n_iter=n_iter, kind="inverse", precision=precision, shift=alpha, shared=shared)


def _counters(matrices: Tensor, n_steps: int) -> Tensor:
    """Barrier counters of each launch, zero."""
    return torch.zeros((n_steps + 1, len(matrices)), dtype=torch.int32, device=matrices.device)
