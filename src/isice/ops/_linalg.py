"""Traces, diagonals and symmetric parts of batched matrices, and numbers given per matrix."""

from typing import NamedTuple

import torch
from torch import Tensor

from .._checks import check_number

# Total variance below which a matrix counts as zero. 1/trace² still fits in float32.
NO_VARIANCE = 1e-14


class TraceNormalized(NamedTuple):
    """A matrix divided by its trace, and what the backward pass needs."""

    matrix: Tensor  # (B, D, D), trace one
    scale: Tensor  # (B, 1, 1), the trace, or one where there is no variance
    has_variance: Tensor  # (B, 1, 1), boolean


def trace(matrix: Tensor) -> Tensor:
    """Return the traces (..., 1, 1) of (..., D, D)."""
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True).unsqueeze(-1)


def inner(a: Tensor, b: Tensor) -> Tensor:
    """Return the inner products ⟨A, B⟩ (..., 1, 1) of matrices (..., D, D)."""
    return (a * b).sum(dim=(-2, -1), keepdim=True)


def out_of_place(result: Tensor) -> Tensor:
    """Return a result of in-place operations such that an autograd Function may return it.

    torch 2.11 compiles a Function whose output was changed in place to a gradient of zero. The copy
    is made while compiling only, where it is fused.
    """
    return result.clone() if torch.compiler.is_compiling() else result


def fill_dead_diagonal(cov: Tensor) -> Tensor:
    """Give channels without variance the mean variance (or one), so that the solution exists."""
    variance = cov.diagonal(dim1=-2, dim2=-1)
    mean = variance.mean(-1, keepdim=True)
    mean = torch.where(mean > NO_VARIANCE, mean, torch.ones_like(mean))
    return cov + torch.diag_embed(torch.where(variance > 1e-7 * mean, torch.zeros_like(variance), mean))


def add_diagonal_(matrix: Tensor, value: Tensor | float) -> Tensor:
    """Return ``matrix + value·I`` like :func:`add_diagonal`, in place unless exporting."""
    if torch.compiler.is_exporting():
        # Neither exported graphs nor ONNX have an in-place diagonal. The values are the same.
        return matrix + value * torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    if isinstance(value, Tensor) and value.ndim:
        value = value.squeeze(-1)
    matrix.diagonal(dim1=-2, dim2=-1).add_(value)
    return matrix


def add_diagonal(matrix: Tensor, value: Tensor | float) -> Tensor:
    """Return ``matrix + value·I`` for a number or values (..., 1, 1)."""
    return add_diagonal_(matrix.clone(), value)


def per_matrix(who: str, name: str, value: float | Tensor, cov: Tensor, *, strict: bool = False) -> float | Tensor:
    """Return a checked number ≥ 0 (> 0 if ``strict``), or a tensor (B, 1, 1) per matrix."""
    if not isinstance(value, Tensor):
        check_number(who, name, value, strict=strict)
        return value
    batch = cov.shape[:-2]
    if value.ndim and value.shape != batch:
        raise ValueError(
            f"{who}: expected {name} to be a number or of shape {tuple(batch)}, one value per matrix, "
            f"got {tuple(value.shape)}."
        )
    return value.to(cov).expand(batch).reshape(-1, 1, 1)


def plus_transpose(matrix: Tensor) -> Tensor:
    """Return A + Aᵀ for matrices (B, D, D).

    Transposing D×D matrices is a shuffle of D² channels in D groups. On a CPU PyTorch vectorises
    the shuffle, but reads a transposed view entry by entry, several times slower.
    """
    if matrix.device.type != "cpu" or torch.compiler.is_compiling() or not matrix.numel():
        return matrix + matrix.mT
    batch, size, _ = matrix.shape
    channels_last = matrix.reshape(batch, 1, 1, size * size).permute(0, 3, 1, 2)
    return torch.channel_shuffle(channels_last, size).view(batch, size, size).add_(matrix)


def symmetric(matrix: Tensor) -> Tensor:
    """Return (A + Aᵀ)/2 for matrices (B, D, D)."""
    return plus_transpose(matrix).mul_(0.5)


def trace_scale(matrix: Tensor, shift: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return tr(A + ``shift``·I), one where there is no variance, and whether there is any."""
    total = trace(matrix) + shift * matrix.shape[-1]
    has_variance = total > NO_VARIANCE
    return torch.where(has_variance, total, 1.0), has_variance


def normalize_trace(matrix: Tensor, shift: float = 0.0) -> TraceNormalized:
    """Divide A + ``shift``·I by its trace; a trace of at most 1e-14 gives I/D instead of NaN."""
    scale, has_variance = trace_scale(matrix, shift)
    inverse = scale.reciprocal()
    on_diagonal = torch.where(has_variance, shift * inverse, shift + 1 / matrix.shape[-1])
    return TraceNormalized(add_diagonal_(matrix * inverse, on_diagonal), scale, has_variance)


def normalize_trace_vjp(normalized: TraceNormalized, grad: Tensor) -> Tensor:
    """Return the cotangent of A in :func:`normalize_trace`, given the cotangent of its matrix."""
    along_trace = inner(grad, normalized.matrix) * normalized.has_variance / normalized.scale
    return add_diagonal_(grad / normalized.scale, -along_trace)
