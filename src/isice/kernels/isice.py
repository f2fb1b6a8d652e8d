"""iSICE on tiled matrices, one launch a step: the twin of ``ops/isice.py``."""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .ends import divide, gather, normalize, norms_of, spread
from .launch import Crew, Room, Step, run


class Settings(NamedTuple):
    """The options of Alg. 2 that are plain values; ``betas`` are the decaying rates of the steps that move anything."""

    betas: list[float]
    n_inverse_iter: int
    power: float  # the output is divided by this power of its trace
    printed: bool  # whether the first ∇₁ is S₀ itself
    alpha: float
    precision: str


class Kept(NamedTuple):
    """The result, and what the backward pass needs; matrices are tiled."""

    out: Tensor  # (B, D(D+1)/2)
    totals: Tensor  # (B, 2): the trace of the last S, and whether it counts
    sigma: Tensor  # Σ'
    scales: Tensor  # (B, 2): the trace of Σ, and whether it counts
    steps: Tensor  # (steps, B, …): S before each step
    alive: Tensor  # (steps, B, …) int8: which parts each step left positive


def _printed_step(s: Tensor, sigma: Tensor, rate: Tensor, lam: Tensor) -> tuple[Tensor, Tensor]:
    """The step with ∇₁ = S, by PyTorch; rate and λ are (B, 1, 1, 1)."""
    moved, threshold = rate * (s - sigma), rate * lam
    plus, minus = (s.relu() + moved - threshold).relu(), ((-s).relu() - moved - threshold).relu()
    return plus - minus, (plus > 0).to(torch.int8) + 2 * (minus > 0).to(torch.int8)


def _printed_step_vjp(
    s: Tensor, sigma: Tensor, rate: Tensor, lam: Tensor, alive: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Cotangents of S and G, and those of rate and λ (B, tiles, 2)."""
    d_plus, d_minus = grad * (alive & 1), grad * (alive & 2).ne(0)
    d_gradient = (d_plus + d_minus) * rate
    d_s = d_plus * (s > 0) + d_minus * (s < 0) + d_gradient
    twice = 2 - _on_diagonal(s)  # a tile off the diagonal stands for two
    d_rate = (d_plus * (s - sigma - lam) + d_minus * (s - sigma + lam)).sum((2, 3)) * twice
    d_lam = (rate * (d_minus - d_plus)).sum((2, 3)) * twice
    return d_s, d_gradient, torch.stack([d_rate, d_lam], dim=-1)


def _on_diagonal(tiled: Tensor) -> Tensor:
    """One for each tile on the diagonal, zero for the others."""
    n_blocks = (math.isqrt(8 * tiled.shape[1] + 1) - 1) // 2
    return torch.eye(n_blocks, device=tiled.device)[tuple(torch.triu_indices(n_blocks, n_blocks))]


def value(cov: Tensor, lam: Tensor, eta: Tensor, settings: Settings) -> Kept:
    """Alg. 2 for whole matrices (B, D, D) and per-image values (B,)."""
    betas, n_inverse_iter, power, printed, alpha, precision = settings
    D, (sigma, scales), counters = cov.shape[-1], normalize(cov), _counters(cov, len(betas))
    inverse = _inverse(D, n_inverse_iter, precision, alpha)
    steps = sigma.new_empty((len(betas), *sigma.shape))
    alive = sigma.new_empty(steps.shape, dtype=torch.int8)
    matrices = [*steps, torch.empty_like(sigma)]
    inverse(sigma, out=matrices[0], counters=counters[-1])
    for i, beta in enumerate(betas):
        s, following = matrices[i], matrices[i + 1]
        if printed and i == 0:
            moved, alive[i] = _printed_step(s, sigma, _per_tile(eta * beta), _per_tile(lam))
            following.copy_(moved)
        else:
            inverse(s, step=Step(sigma, eta, lam, alive[i], beta), out=following, counters=counters[i])
    del inverse  # and its memory
    return Kept(*divide(matrices[-1], power, D), sigma, scales, steps, alive)


def vjp(
    grad: Tensor, D: int, kept: Kept, lam: Tensor, eta: Tensor, settings: Settings, learned: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Cotangents of Σ (B, D, D), λ and η (B,) for that of the vector, an entry of which stands for two.

    Those of λ and η are empty unless ``learned``.
    """
    betas, n_inverse_iter, power, printed, alpha, precision = settings
    out, totals, sigma, scales, steps, alive = kept
    inverse = _inverse(D, n_inverse_iter, precision, alpha)
    counters, moments = _counters(sigma, len(betas)), sigma.new_empty((len(betas), *sigma.shape[:2], 2))
    (d_s, norms), d_sigma = spread(grad, out, totals, power, D), torch.zeros_like(sigma)
    for i in reversed(range(len(betas))):
        if printed and i == 0:
            step_options = sigma, _per_tile(eta * betas[i]), _per_tile(lam), alive[i]
            d_s, d_gradient, moments[i] = _printed_step_vjp(steps[i], *step_options, d_s)
            d_sigma -= d_gradient
            norms = norms_of(d_s)
        else:
            step = Step(sigma, eta, lam, alive[i], betas[i], d_sigma, moments[i] if learned else None)
            d_s, norms = inverse(steps[i], cotangent=d_s, norms=norms, step=step, counters=counters[i])
    d_first, _ = inverse(sigma, cotangent=d_s, norms=norms, counters=counters[-1])
    del inverse  # and its memory
    if not learned:
        return gather(d_sigma, d_first, sigma, scales, D), lam.new_empty(0), eta.new_empty(0)
    d_lam, d_eta = torch.zeros_like(lam), torch.zeros_like(eta)
    for beta, sums in zip(betas, moments.sum(2), strict=True):
        d_eta.add_(sums[:, 0], alpha=beta)
        d_lam.add_(sums[:, 1])
    return gather(d_sigma, d_first, sigma, scales, D), d_lam, d_eta


def _inverse(D: int, n_iter: int, precision: str, alpha: float) -> Callable[..., tuple[Tensor, Tensor]]:
    """The inverse by launches that share their memory."""
    rooms: dict[Crew, Room] = {}
    return functools.partial(run, D=D, n_iter=n_iter, kind="inverse", precision=precision, shift=alpha, rooms=rooms)


def _counters(matrices: Tensor, n_steps: int) -> Tensor:
    """Zeros for each launch."""
    return torch.zeros((n_steps + 1, len(matrices)), dtype=torch.int32, device=matrices.device)


def _per_tile(values: Tensor) -> Tensor:
    return values[:, None, None, None]
