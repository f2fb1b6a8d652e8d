"""One projected gradient step of iSICE (paper, Alg. 2, lines 7–11) and its backward pass."""

import torch
from torch import Tensor

from ._trace import inner


def update(s: Tensor, gradient: Tensor, rate: Tensor, lam: Tensor) -> tuple[Tensor, Tensor]:
    """The new S⁺ and S⁻ for G = ∇₁ − Σ', the rate ηβ and λ."""
    plus = torch.relu(torch.relu(s) + rate * (gradient - lam))
    minus = torch.relu(torch.relu(-s) - rate * (gradient + lam))
    return plus, minus


@torch.library.custom_op("isice::sparse_step", mutates_args=())
def _fused_step(s: Tensor, nabla: Tensor, sigma: Tensor, rate: Tensor, lam: Tensor) -> Tensor:
    from ..kernels import sparse_step

    return sparse_step.step(s, nabla, sigma, rate, lam)


@_fused_step.register_fake
def _(s: Tensor, nabla: Tensor, sigma: Tensor, rate: Tensor, lam: Tensor) -> Tensor:
    return torch.empty_like(s)


@torch.library.custom_op("isice::sparse_step_vjp", mutates_args=())
def _fused_step_vjp(
    s: Tensor, nabla: Tensor, sigma: Tensor, rate: Tensor, lam: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from ..kernels import sparse_step

    return sparse_step.step_vjp(s, nabla, sigma, rate, lam, grad)


@_fused_step_vjp.register_fake
def _(
    s: Tensor, nabla: Tensor, sigma: Tensor, rate: Tensor, lam: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return torch.empty_like(s), torch.empty_like(s), torch.empty_like(rate), torch.empty_like(lam)


def sparse_step(s: Tensor, nabla: Tensor, sigma: Tensor, rate: Tensor, lam: Tensor, kernels: bool) -> Tensor:
    """The next S, for matrices (B, D, D) and per-image values (B, 1, 1)."""
    if kernels:
        return _fused_step(s, nabla, sigma, rate, lam.contiguous())
    plus, minus = update(s, nabla - sigma, rate, lam)
    return plus - minus


def sparse_step_vjp(
    s: Tensor, nabla: Tensor, sigma: Tensor, rate: Tensor, lam: Tensor, grad: Tensor, kernels: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Cotangents of S, G, ηβ and λ for the cotangent ``grad`` of the next S."""
    if kernels:
        return _fused_step_vjp(s, nabla, sigma, rate, lam.contiguous(), grad.contiguous())
    gradient = nabla - sigma
    plus, minus = update(s, gradient, rate, lam)
    d_plus, d_minus = grad * (plus > 0), grad * (minus > 0)
    d_s = d_plus * (s > 0) + d_minus * (s < 0)
    d_rate = inner(d_plus, gradient - lam) + inner(d_minus, gradient + lam)
    d_lam = rate * (d_minus - d_plus).sum(dim=(-2, -1), keepdim=True)
    return d_s, rate * (d_plus + d_minus), d_rate, d_lam
