"""One gradient step of iSICE and its backward pass, each one pass over memory: twin of ``ops/_sparse_step.py``."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 2048


@triton.jit
def _parts(s, gradient, rate, lam):
    plus = tl.maximum(tl.maximum(s, 0.0) + rate * (gradient - lam), 0.0)
    minus = tl.maximum(tl.maximum(-s, 0.0) - rate * (gradient + lam), 0.0)
    return plus, minus


@triton.jit
def _step(s, nabla, sigma, rates, lams, out, size, BLOCK: tl.constexpr):
    image = tl.program_id(1)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    place = place + image.to(tl.int64) * size
    gradient = tl.load(nabla + place, mask=inside) - tl.load(sigma + place, mask=inside)
    plus, minus = _parts(tl.load(s + place, mask=inside), gradient, tl.load(rates + image), tl.load(lams + image))
    tl.store(out + place, plus - minus, mask=inside)


@triton.jit
def _step_vjp(
    s, nabla, sigma, rates, lams, grads, d_s, d_gradient, d_rate, d_lam, size, BLOCK: tl.constexpr
):  # fmt: skip
    image, block = tl.program_id(1), tl.program_id(0)
    place = block * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    place = place + image.to(tl.int64) * size
    rate, lam = tl.load(rates + image), tl.load(lams + image)
    value = tl.load(s + place, mask=inside, other=0.0)
    gradient = tl.load(nabla + place, mask=inside, other=0.0) - tl.load(sigma + place, mask=inside, other=0.0)
    grad = tl.load(grads + place, mask=inside, other=0.0)
    plus, minus = _parts(value, gradient, rate, lam)
    d_plus, d_minus = tl.where(plus > 0, grad, 0.0), tl.where(minus > 0, grad, 0.0)
    tl.store(d_s + place, tl.where(value > 0, d_plus, 0.0) + tl.where(value < 0, d_minus, 0.0), mask=inside)
    tl.store(d_gradient + place, rate * (d_plus + d_minus), mask=inside)
    # One partial sum per block, added up afterwards: atomic additions would come in no fixed order.
    partial = image * tl.num_programs(0) + block
    tl.store(d_rate + partial, tl.sum(d_plus * (gradient - lam) + d_minus * (gradient + lam)))
    tl.store(d_lam + partial, rate * tl.sum(d_minus - d_plus))


def step(s: Tensor, nabla: Tensor, sigma: Tensor, rate: Tensor, lam: Tensor) -> Tensor:
    """The next S for contiguous matrices (B, D, D) and per-image values (B, 1, 1)."""
    out, size = torch.empty_like(s), s.shape[-1] ** 2
    _step[(triton.cdiv(size, _BLOCK), s.shape[0])](s, nabla, sigma, rate, lam, out, size, BLOCK=_BLOCK)
    return out


def step_vjp(
    s: Tensor, nabla: Tensor, sigma: Tensor, rate: Tensor, lam: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Cotangents of S, G, the rate and λ for the cotangent ``grad`` of the next S."""
    size, batch = s.shape[-1] ** 2, s.shape[0]
    blocks = triton.cdiv(size, _BLOCK)
    d_s, d_gradient = torch.empty_like(s), torch.empty_like(s)
    rates, lams = torch.empty((2, batch, blocks, 1), dtype=s.dtype, device=s.device)
    _step_vjp[(blocks, batch)](s, nabla, sigma, rate, lam, grad, d_s, d_gradient, rates, lams, size, BLOCK=_BLOCK)
    return d_s, d_gradient, rates.sum(dim=1, keepdim=True), lams.sum(dim=1, keepdim=True)
