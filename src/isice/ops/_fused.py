"""The kernels as operations of torch.library, so that torch.compile sees through to their shapes, and their autograd.

The functions take what ``ops/newton_schulz.py`` and ``ops/isice.py`` have checked: float32 matrices on a GPU.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from ._autograd import first_derivative_only
from ._dispatch import kernel_precision

_LIBRARY = torch.library.Library("isice", "FRAGMENT")


def _operation(function: Callable[..., Any]) -> OpOverload:
    """Registers ``_name`` as ``isice::name``.

    ``torch.library.custom_op`` would do, but costs several times as much at each call: it also makes operations
    differentiable, and looks for results that share memory with arguments.
    """
    name = function.__name__.removeprefix("_")
    schema = torch.library.infer_schema(function, mutates_args=())
    _LIBRARY.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
    torch.library.register_kernel(f"isice::{name}", None, function, lib=_LIBRARY)
    return getattr(torch.ops.isice, name).default


def _shape_of(operation: OpOverload) -> Callable[..., Any]:
    """Registers what torch.compile calls instead of the operation."""
    return torch.library.register_fake(operation, lib=_LIBRARY)


def _result(matrices: Tensor, vectorized: bool) -> Tensor:
    batch, size = matrices.shape[0], matrices.shape[-1]
    return matrices.new_empty((batch, size * (size + 1) // 2) if vectorized else (batch, size, size))


@_operation
def _newton_schulz(cov: Tensor, n_iter: int, kind: str, precision: str, vectorized: bool) -> Tensor:
    from ..kernels.ends import from_tiles, to_tiles
    from ..kernels.launch import run

    D = cov.shape[-1]
    with torch.cuda.device_of(cov):
        return from_tiles(run(to_tiles(cov.contiguous(), D), D, n_iter, kind, precision)[0], D, vectorized)


@_shape_of(_newton_schulz)
def _(cov: Tensor, n_iter: int, kind: str, precision: str, vectorized: bool) -> Tensor:
    return _result(cov, vectorized)


@_operation
def _newton_schulz_vjp(
    cov: Tensor, grad: Tensor, n_iter: int, kind: str, precision: str, vectorized: bool
) -> Tensor:  # fmt: skip
    from ..kernels.ends import from_tiles, to_tiles
    from ..kernels.launch import run

    D = cov.shape[-1]
    with torch.cuda.device_of(cov):
        tiles, direction = to_tiles(cov.contiguous(), D), to_tiles(grad.contiguous(), D, cotangent=True)
        return from_tiles(run(tiles, D, n_iter, kind, precision, cotangent=direction)[0], D)


@_shape_of(_newton_schulz_vjp)
def _(cov: Tensor, grad: Tensor, n_iter: int, kind: str, precision: str, vectorized: bool) -> Tensor:
    return cov.new_empty(cov.shape)


@_operation
def _isice(
    cov: Tensor, lam: Tensor, eta: Tensor, betas: list[float], n_inverse_iter: int, power: float, printed: bool,
    alpha: float, precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    from ..kernels import isice

    settings = isice.Settings(list(betas), n_inverse_iter, power, printed, alpha, precision)
    with torch.cuda.device_of(cov):
        return isice.value(cov.contiguous(), lam.contiguous(), eta.contiguous(), settings)


@_shape_of(_isice)
def _(
    cov: Tensor, lam: Tensor, eta: Tensor, betas: list[float], n_inverse_iter: int, power: float, printed: bool,
    alpha: float, precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    from ..kernels.program import tiled_shape

    sigma = cov.new_empty(tiled_shape(len(cov), cov.shape[-1]))
    steps, totals = sigma.new_empty((len(betas), *sigma.shape)), cov.new_empty((len(cov), 2))
    alive = torch.empty_like(steps, dtype=torch.int8)
    return _result(cov, True), totals, sigma, torch.empty_like(totals), steps, alive


@_operation
def _isice_vjp(
    grad: Tensor, size: int, kept: list[Tensor], lam: Tensor, eta: Tensor, learned: bool, betas: list[float],
    n_inverse_iter: int, power: float, printed: bool, alpha: float, precision: str,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    from ..kernels import isice

    settings = isice.Settings(list(betas), n_inverse_iter, power, printed, alpha, precision)
    per_image = lam.contiguous(), eta.contiguous()
    with torch.cuda.device_of(grad):
        return isice.vjp(grad.contiguous(), size, isice.Kept(*kept), *per_image, settings, learned)


@_shape_of(_isice_vjp)
def _(
    grad: Tensor, size: int, kept: list[Tensor], lam: Tensor, eta: Tensor, learned: bool, betas: list[float],
    n_inverse_iter: int, power: float, printed: bool, alpha: float, precision: str,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    d_lam, d_eta = (torch.empty_like(value) if learned else value.new_empty(0) for value in (lam, eta))
    return grad.new_empty((len(grad), size, size)), d_lam, d_eta


class FusedNewtonSchulz(torch.autograd.Function):
    """The iteration on (B, D, D); keeps its input only."""

    @staticmethod
    def forward(ctx: Any, cov: Tensor, n_iter: int, kind: str, vectorized: bool) -> Tensor:
        ctx.save_for_backward(cov)
        ctx.settings = (n_iter, kind, kernel_precision(), vectorized)
        return _newton_schulz(cov, *ctx.settings)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (cov,) = ctx.saved_tensors
        n_iter, kind, _, vectorized = ctx.settings
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            # Kernels have no derivative of their own: under create_graph=True PyTorch's operations take their place.
            from .newton_schulz import differentiable_vjp

            return differentiable_vjp(cov, grads[0], n_iter, kind, vectorized), None, None, None
        return _newton_schulz_vjp(cov, grads[0], *ctx.settings), None, None, None


class FusedISICE(torch.autograd.Function):
    """Alg. 2 on (B, D, D), giving vectors; keeps Σ' and the S of each step. No second derivative."""

    @staticmethod
    def forward(ctx: Any, cov: Tensor, lam: Tensor, eta: Tensor, settings: tuple[Any, ...]) -> Tensor:
        ctx.settings, ctx.size = (*settings, kernel_precision()), cov.shape[-1]
        out, *kept = _isice(cov, lam, eta, *ctx.settings)
        ctx.save_for_backward(lam, eta, out, *kept)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        lam, eta, *kept = ctx.saved_tensors
        with torch.no_grad():
            learned = any(ctx.needs_input_grad[1:3])
            result = _isice_vjp(grads[0], ctx.size, kept, lam, eta, learned, *ctx.settings)
        # The result stands for Σ, which is not kept: it depends on it.
        d_cov, *per_image = first_derivative_only("isice", (grads[0], kept[0], lam, eta), result)
        return (d_cov, *(per_image if learned else (None, None)), None)


@_operation
def _covariance(x: Tensor, precision: str) -> tuple[Tensor, Tensor]:
    from ..kernels import covariance

    with torch.cuda.device_of(x):
        return covariance.value(x, precision)


@_shape_of(_covariance)
def _(x: Tensor, precision: str) -> tuple[Tensor, Tensor]:
    batch, channels, _ = x.shape
    cov = x.new_empty((batch, channels, channels), dtype=torch.float32)
    return cov, x.new_empty((batch, 2, channels), dtype=torch.float32)


@_operation
def _covariance_vjp(x: Tensor, rows: Tensor, grad: Tensor, precision: str) -> Tensor:
    from ..kernels import covariance

    with torch.cuda.device_of(x):
        return covariance.vjp(x, rows, grad.contiguous(), precision)


@_shape_of(_covariance_vjp)
def _(x: Tensor, rows: Tensor, grad: Tensor, precision: str) -> Tensor:
    return torch.empty_like(x)


class FusedCovariance(torch.autograd.Function):
    """The covariance, in float32, of features (B, C, N) of 16 or 32 bits; keeps them, their means and bounds."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.precision = kernel_precision()
        cov, rows = _covariance(x, ctx.precision)
        ctx.save_for_backward(x, rows)
        return cov

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        x, rows = ctx.saved_tensors
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            from .covariance import differentiable_vjp

            return differentiable_vjp(x, grads[0])
        return _covariance_vjp(x, rows, grads[0], ctx.precision)
