"""Symmetric matrices as their upper triangles (B, D(D+1)/2), in the order of ``vectorize``."""

import functools
from typing import NamedTuple

import torch
from torch import Tensor

# As in ops/_trace.py: a matrix with less variance counts as zero.
_NO_VARIANCE = 1e-14


class Places(NamedTuple):
    """Where the entries of a triangle and of a whole matrix lie in each other."""

    diagonal: Tensor  # (D,) in the triangle
    weights: Tensor  # (D(D+1)/2,) float32: one on the diagonal, a half elsewhere
    upper: Tensor  # (D(D+1)/2,) in the whole matrix
    whole: Tensor  # (D·D,) in the triangle


@functools.lru_cache(maxsize=32)
def places(D: int, device: torch.device) -> Places:
    """The index tables of one size."""
    rows, columns = torch.triu_indices(D, D, device=device)
    whole = torch.zeros((D, D), dtype=torch.long, device=device)
    whole[rows, columns] = torch.arange(len(rows), device=device)
    whole[columns, rows] = whole[rows, columns]
    weights = torch.where(rows == columns, 1.0, 0.5)
    return Places(whole.diagonal().clone(), weights, rows * D + columns, whole.flatten())


def pack(matrices: Tensor) -> Tensor:
    """Upper triangles of (B, D, D)."""
    D = matrices.shape[-1]
    return matrices.flatten(1).index_select(1, places(D, matrices.device).upper)


def unpack(triangles: Tensor, D: int) -> Tensor:
    """The matrices (B, D, D) of upper triangles."""
    return triangles.index_select(1, places(D, triangles.device).whole).unflatten(1, (D, D))


def halve_off_diagonal(triangles: Tensor, D: int) -> Tensor:
    """The cotangent of a vector as that of a symmetric matrix, two of whose entries an entry stands for."""
    return triangles * places(D, triangles.device).weights


def trace(triangles: Tensor, D: int) -> tuple[Tensor, Tensor]:
    """The traces (B, 1), one where there is no variance; and 1 where the trace counts, else 0."""
    total = triangles.index_select(1, places(D, triangles.device).diagonal).sum(1, keepdim=True)
    alive = (total > _NO_VARIANCE).to(total.dtype)
    return torch.where(alive > 0, total, 1.0), alive


def add_diagonal_(triangles: Tensor, value: Tensor, D: int) -> Tensor:
    """Adds per-matrix values (B, 1) to the diagonals, in place."""
    return triangles.index_add_(1, places(D, triangles.device).diagonal, value.expand(-1, D))


def inner(a: Tensor, b: Tensor, D: int) -> Tensor:
    """The inner products (B, 1) of the whole matrices."""
    product, diagonal = a * b, places(D, a.device).diagonal
    return 2 * product.sum(1, keepdim=True) - product.index_select(1, diagonal).sum(1, keepdim=True)
