"""Penalty weights of concave penalties, for their local linear approximation."""

from collections.abc import Callable

import torch
from torch import Tensor

SCAD_SHAPE = 3.7  # Fan and Li (2001)
MCP_SHAPE = 3.0
SMALLEST = 1e-4  # keeps the adaptive weights of zero entries finite


def adaptive(magnitude: Tensor, sparsity: Tensor) -> Tensor:
    """Weights |θ|^(−1/2) of the adaptive lasso (Fan, Feng and Wu 2009)."""
    return magnitude.clamp(min=SMALLEST).rsqrt()


def scad(magnitude: Tensor, sparsity: Tensor) -> Tensor:
    """Return the SCAD penalty's derivative over λ: one up to λ, then falling to zero at 3.7 λ."""
    excess = (SCAD_SHAPE * sparsity - magnitude).clamp(min=0) / ((SCAD_SHAPE - 1) * sparsity)
    return torch.where(magnitude <= sparsity, 1.0, excess)


def mcp(magnitude: Tensor, sparsity: Tensor) -> Tensor:
    """Return the minimax concave penalty's derivative divided by λ, from one to zero at 3 λ."""
    return (1 - magnitude / (MCP_SHAPE * sparsity)).clamp(min=0)


REWEIGHTINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"adaptive": adaptive, "scad": scad, "mcp": mcp}
