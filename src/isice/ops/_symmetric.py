"""Sums of matrices (B, D, D) with their transposes."""

import torch
from torch import Tensor


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
