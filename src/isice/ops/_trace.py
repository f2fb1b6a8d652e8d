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
    alive: Tensor  # (B, 1, 1), 1 where the trace counts, else 0


def trace(matrix: Tensor) -> Tensor:
    """The traces (..., 1, 1) of (..., D, D)."""
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]


def add_diagonal_(matrix: Tensor, value: Tensor | float) -> Tensor:
    """Adds ``value·I``, a number or per-matrix values (..., 1, 1), in place where possible; use what it returns."""
    if torch.compiler.is_exporting():
        # A graph to be exported has no in-place diagonal, and ONNX no operation for it; the numbers are the same.
        return matrix + value * torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    matrix.diagonal(dim1=-2, dim2=-1).add_(value.squeeze(-1) if isinstance(value, Tensor) else value)
    return matrix


def add_diagonal(matrix: Tensor, value: Tensor | float) -> Tensor:
    """``matrix + value·I``, see :func:`add_diagonal_`."""
    return add_diagonal_(matrix.clone(), value)


def inner(a: Tensor, b: Tensor) -> Tensor:
    """The inner products ⟨A, B⟩ (..., 1, 1) of (..., D, D) matrices."""
    return (a * b).sum(dim=(-2, -1), keepdim=True)


def normalize_trace(matrix: Tensor, shift: float = 0.0) -> TraceNormalized:
    """Divides A + ``shift``·I by its trace; a matrix without variance (trace ≤ 1e-14) becomes I/D instead of NaN."""
    size = matrix.shape[-1]
    total = trace(matrix) + shift * size
    alive = total > NO_VARIANCE
    scale = torch.where(alive, total, 1.0)
    alive = alive.to(matrix.dtype)
    return TraceNormalized(add_diagonal_(matrix / scale, (1 - alive) / size + shift / scale), scale, alive)


def normalize_trace_vjp(normalized: TraceNormalized, grad: Tensor) -> Tensor:
    """The cotangent of the input of :func:`normalize_trace` for the cotangent ``grad`` of its matrix."""
    along_trace = inner(grad, normalized.matrix) * normalized.alive
    return add_diagonal(grad, -along_trace) / normalized.scale
