"""Trace normalisation that survives matrices without variance, shared by the iterative operations."""

from typing import NamedTuple

import torch
from torch import Tensor

# Below this total variance a matrix counts as zero: 1/trace² still fits in float32.
NO_VARIANCE = 1e-14


class TraceNormalized(NamedTuple):
    """A matrix divided by its trace, with what the backward pass needs."""

    matrix: Tensor  # (B, D, D), trace one
    scale: Tensor  # (B, 1, 1), the trace, or one where there is no variance
    alive: Tensor  # (B, 1, 1), whether the trace counts


def trace(matrix: Tensor) -> Tensor:
    """The traces (..., 1, 1) of (..., D, D)."""
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True).unsqueeze(-1)


def add_diagonal_(matrix: Tensor, value: Tensor | float) -> Tensor:
    """Adds ``value·I``, one number or per-matrix values (..., 1, 1), in place where possible; use what it returns."""
    if torch.compiler.is_exporting():
        # A graph to be exported has no in-place diagonal, and ONNX no operation for it; the numbers are the same.
        return matrix + value * torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    if isinstance(value, Tensor) and value.ndim:
        value = value.squeeze(-1)
    matrix.diagonal(dim1=-2, dim2=-1).add_(value)
    return matrix


def add_diagonal(matrix: Tensor, value: Tensor | float) -> Tensor:
    """``matrix + value·I``, see :func:`add_diagonal_`."""
    return add_diagonal_(matrix.clone(), value)


def inner(a: Tensor, b: Tensor) -> Tensor:
    """The inner products ⟨A, B⟩ (..., 1, 1) of (..., D, D) matrices."""
    return (a * b).sum(dim=(-2, -1), keepdim=True)


def trace_scale(matrix: Tensor, shift: float = 0.0) -> tuple[Tensor, Tensor]:
    """The trace (..., 1, 1) of A + ``shift``·I, or one where there is no variance; and whether it counts."""
    total = trace(matrix) + shift * matrix.shape[-1]
    alive = total > NO_VARIANCE
    return torch.where(alive, total, 1.0), alive


def normalize_trace(matrix: Tensor, shift: float = 0.0) -> TraceNormalized:
    """Divides A + ``shift``·I by its trace; a matrix without variance (trace ≤ 1e-14) becomes I/D instead of NaN."""
    scale, alive = trace_scale(matrix, shift)
    inverse = scale.reciprocal()
    on_diagonal = torch.where(alive, shift * inverse, shift + 1 / matrix.shape[-1])
    return TraceNormalized(add_diagonal_(matrix * inverse, on_diagonal), scale, alive)


def normalize_trace_vjp(normalized: TraceNormalized, grad: Tensor) -> Tensor:
    """The cotangent of the input of :func:`normalize_trace` for the cotangent ``grad`` of its matrix."""
    along_trace = inner(grad, normalized.matrix) * normalized.alive / normalized.scale
    return add_diagonal_(grad / normalized.scale, -along_trace)


def plus_transpose(matrix: Tensor) -> Tensor:
    """A + Aᵀ.

    To transpose D×D matrices is to shuffle D² channels in D groups. On a CPU PyTorch does that in vector registers;
    a transposed view it reads entry by entry, several times as slowly.
    """
    if matrix.device.type != "cpu" or torch.compiler.is_compiling() or not matrix.numel():
        return matrix + matrix.mT
    batch, size, _ = matrix.shape
    channels_last = matrix.reshape(batch, 1, 1, size * size).permute(0, 3, 1, 2)
    return torch.channel_shuffle(channels_last, size).view(batch, size, size).add_(matrix)


def symmetric(matrix: Tensor) -> Tensor:
    """(A + Aᵀ)/2."""
    return plus_transpose(matrix).mul_(0.5)
