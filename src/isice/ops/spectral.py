"""⑤ Matrix functions by eigendecomposition, with gradients that allow repeated eigenvalues.

The derivative of f(A) = U f(Λ) Uᵀ is U(L ∘ (Uᵀ dA U))Uᵀ with the divided differences L_ij = (f(λ_i)
− f(λ_j)) / (λ_i − λ_j), or f'(λ_i) if they coincide (Daleckiĭ–Kreĭn). For powers and the logarithm,
L has closed forms without cancellation, so no threshold for equal eigenvalues is needed.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor

from .._checks import check_number, check_symmetric, under_torch_func
from ._autograd import first_derivative_only
from ._linalg import NO_VARIANCE
from ._numerics import full_precision

# Smaller batches and matrices on a GPU are decomposed there.
_MIN_BATCH, _MIN_SIDE = 8, 64


def _batched_eigh(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues and eigenvectors of symmetric matrices (…, D, D).

    On a GPU, ``torch.linalg.eigh`` of PyTorch 2.11 loops over the matrices of a batch if D > 32. On
    an H200 it is then about as fast as one core of the host (D = 256). Larger batches are therefore
    decomposed by all cores of the host.
    """
    few = matrices.shape[-1] < _MIN_SIDE or matrices.shape[:-2].numel() < _MIN_BATCH
    if matrices.device.type != "cuda" or few or torch.compiler.is_compiling() or under_torch_func():
        return torch.linalg.eigh(matrices)  # type: ignore[no-any-return]
    values, vectors = eigh_in_threads(matrices)
    return values.to(matrices.device), vectors.to(matrices.device)


def eigh_in_threads(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Decompose a batch on the CPU, divided over its cores; infinite or nan entries give nan."""
    batch = matrices.detach().cpu().flatten(0, -3)
    broken = ~batch.isfinite().all(dim=-1).all(dim=-1)
    pool, count = _thread_pool()
    found = pool.map(torch.linalg.eigh, batch.masked_fill(broken[:, None, None], 0.0).tensor_split(count))
    values, vectors = (torch.cat(parts) for parts in zip(*found, strict=True))
    values, vectors = (
        values.masked_fill(broken[:, None], torch.nan),
        vectors.masked_fill(broken[:, None, None], torch.nan),
    )
    return values.view(matrices.shape[:-1]), vectors.view(matrices.shape)


@cache
def _thread_pool() -> tuple[ThreadPoolExecutor, int]:
    """Create a pool of ``torch.get_num_threads()`` threads whose operations are single-threaded."""

    def start() -> None:
        torch.set_num_threads(1)
        torch.get_num_threads()  # otherwise the first operation would reset it to the global number

    count = torch.get_num_threads()
    started = threading.Barrier(count)
    pool = ThreadPoolExecutor(count, initializer=start)
    list(pool.map(lambda _: started.wait(), range(count)))  # until every thread has started
    torch.set_num_threads(count)  # the global number, which the threads have changed
    return pool, count


def _floored_eigh(cov: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues, at least D·ε·λ_max (rounding level) and 1e-14, and eigenvectors."""
    values, vectors = _batched_eigh(cov)
    epsilon = torch.finfo(cov.dtype).eps * cov.shape[-1]
    floor = (values[..., -1:] * epsilon).clamp_min(NO_VARIANCE)
    return torch.maximum(values, floor), vectors


def matrix_power_reference(cov: Tensor, p: float) -> Tensor:
    """Compute Σ^p by eigh and autograd, for distinct eigenvalues; the oracle."""
    values, vectors = torch.linalg.eigh(cov)
    return cast(Tensor, (vectors * values.unsqueeze(-2) ** p) @ vectors.mT)


def matrix_log_reference(cov: Tensor) -> Tensor:
    """Compute log Σ by eigh and autograd, for distinct eigenvalues; the oracle."""
    values, vectors = torch.linalg.eigh(cov)
    return cast(Tensor, (vectors * values.log().unsqueeze(-2)) @ vectors.mT)


def _log_ratio(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return r_ij = |log λ_i − log λ_j| and the larger λ of each pair."""
    logs = values.log()
    return (logs.unsqueeze(-1) - logs.unsqueeze(-2)).abs(), torch.maximum(values.unsqueeze(-1), values.unsqueeze(-2))


def _ratio(numerator: Tensor, denominator: Tensor, limit: float) -> Tensor:
    """Return numerator/denominator, or ``limit`` where the denominator is zero."""
    zero = denominator == 0
    return torch.where(zero, limit, numerator / torch.where(zero, 1.0, denominator))


def _power_differences(values: Tensor, p: float) -> Tensor:
    """Return (λ_i^p − λ_j^p)/(λ_i − λ_j) = λ^(p−1)·(1 − e^(−pr))/(1 − e^(−r)), λ the larger."""
    r, larger = _log_ratio(values)
    return larger ** (p - 1) * _ratio(torch.expm1(-p * r), torch.expm1(-r), p)


def _log_differences(values: Tensor) -> Tensor:
    """Return (log λ_i − log λ_j)/(λ_i − λ_j) = r/(1 − e^(−r))/λ with the larger λ of a pair."""
    r, larger = _log_ratio(values)
    return _ratio(-r, torch.expm1(-r), 1.0) / larger


class _Spectral(torch.autograd.Function):
    """Matrix power, or logarithm if ``p`` is None, and the eigendecomposition for backward.

    A second derivative raises an error.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(cov: Tensor, p: float | None) -> tuple[Tensor, Tensor, Tensor]:
        values, vectors = _floored_eigh(cov)
        return (vectors * (values.log() if p is None else values**p).unsqueeze(-2)) @ vectors.mT, values, vectors

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float | None], output: tuple[Tensor, ...]) -> None:
        cov, ctx.p = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(cov, *output[1:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (cov, values, vectors), grad = ctx.saved_tensors, grads[0]
        with torch.no_grad(), torch.autocast(cov.device.type, enabled=False):
            differences = _log_differences(values) if ctx.p is None else _power_differences(values, ctx.p)
            inside = vectors.mT @ (0.5 * (grad + grad.mT)) @ vectors
            result = vectors @ (differences * inside) @ vectors.mT
        who = "matrix_log" if ctx.p is None else "matrix_power"
        return first_derivative_only(who, (grad, cov), (result,))[0], None


@full_precision
def matrix_power(cov: Tensor, p: float) -> Tensor:
    """Compute Σ^p for symmetric positive semi-definite matrices (..., D, D) and any real p.

    Eigenvalues are clamped from below at D·ε·λ_max and 1e-14, so singular matrices have finite
    powers and gradients, unless a large negative p overflows. A second derivative raises an error.

    Example:
        >>> matrix_power(4 * torch.eye(2), -0.5)
        tensor([[0.5000, 0.0000],
                [0.0000, 0.5000]])
    """
    check_symmetric("matrix_power", cov)
    check_number("matrix_power", "p", p, minimum=float("-inf"), strict=True)
    return cast(Tensor, _Spectral.apply(cov, float(p))[0])


@full_precision
def matrix_log(cov: Tensor) -> Tensor:
    """Compute log Σ of matrices (..., D, D), with clamping and gradients as in matrix_power().

    Example:
        >>> matrix_log(torch.eye(2))
        tensor([[0., 0.],
                [0., 0.]])
    """
    check_symmetric("matrix_log", cov)
    return cast(Tensor, _Spectral.apply(cov, None)[0])
