"""The Θ-step of the graphical lasso's ADMM: the positive definite root of Θ⁻¹ − ρΘ = B.

Both ways return Θ/2 up to rounding in the last bits; the caller adds the transpose and so makes Θ exactly symmetric.
"""

import math

import torch
from torch import Tensor


def half_prox_by_eigh(b: Tensor, rho: Tensor) -> Tensor:
    """Θ/2 from the eigenvalues w of ``b``: (√(w² + 4ρ) − w)/(4ρ), in the form that never cancels.

    Args:
        b: Symmetric matrices (B, D, D).
        rho: Penalty parameters (B, 1, 1).
    """
    values, vectors = torch.linalg.eigh(b)
    four_rho = 4 * rho.squeeze(-1)
    larger = torch.addcmul(four_rho, values, values).sqrt_().add_(values.abs())
    half = torch.where(values < 0, larger / four_rho, larger.reciprocal())
    return (vectors * half.unsqueeze(-2)) @ vectors.mT


def half_prox_by_newton_schulz(b: Tensor, rho: Tensor) -> Tensor:
    """The same Θ/2 = (√(B² + 4ρI) − B)/(4ρ) from products alone: on CUDA a batched ``eigh`` runs one by one.

    The spectrum of M = B² + 4ρI lies in [4ρ, ‖M‖_F], so each Newton–Schulz step can be scaled to the interval that
    is left (Chen and Chow 2014): about half the steps of the plain iteration.
    """
    square = torch.bmm(b, b)
    square.diagonal(dim1=-2, dim2=-1).add_(4 * rho.squeeze(-1))
    largest = torch.linalg.matrix_norm(square, keepdim=True)
    lower = float(torch.sqrt(4 * rho / largest).min())
    root = _scaled_square_root(square.div_(largest), min(lower, 1.0)).mul_(torch.sqrt(largest))
    return root.sub_(b).div_(4 * rho)


def _scaled_square_root(y: Tensor, lower: float) -> Tensor:
    """Square root of matrices whose eigenvalues lie in [lower², 1]; overwrites ``y``, uses three more buffers."""
    scales = _step_scales(lower, y.dtype)
    spare, z, p = torch.empty_like(y), None, y.clone()
    for step, alpha in enumerate(scales, start=1):
        if z is not None:
            torch.bmm(z, y, out=p)
        p.mul_(-0.5 * alpha**3).diagonal(dim1=-2, dim2=-1).add_(1.5 * alpha)
        y, spare = torch.bmm(y, p, out=spare), y
        if z is None:
            z, p = p, torch.empty_like(y)
        elif step < len(scales):
            z, spare = torch.bmm(p, z, out=spare), z
    return y


def _step_scales(lower: float, dtype: torch.dtype) -> list[float]:
    """The scale of each step x ← ½αx(3 − α²x²), until every eigenvalue is within rounding of its limit."""
    enough = 1e-6 if dtype == torch.float32 else 1e-13
    scales: list[float] = []
    while len(scales) < 2 or (lower < 1 - enough and len(scales) < 60):
        alpha = math.sqrt(3 / (1 + lower + lower * lower))
        lower = 0.5 * alpha * lower * (3 - alpha * alpha * lower * lower)
        scales.append(alpha)
    return scales
