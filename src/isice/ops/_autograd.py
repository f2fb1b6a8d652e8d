"""Autograd of the GPU kernels as torch.library operations; no second derivatives.

The autograd Functions take tensors that the public operations have checked.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch._ops import OpOverload

from ._dispatch import kernel_precision

_LIBRARY = torch.library.Library("isice", "FRAGMENT")


class _NoSecondDerivative(torch.autograd.Function):
    """Identity on its first argument whose backward pass raises an error.

    The other arguments connect it to the graph, so that no path around it gives a silently wrong
    second derivative. ``once_differentiable`` of PyTorch leaves such a path.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(grad: Tensor, who: str, *inputs: Tensor) -> Tensor:
        return grad.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.who = inputs[1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        raise RuntimeError(
            f"{ctx.who}: expected a first derivative, got a second one, which this operation does not have; "
            f"use {ctx.who}_reference, which autograd differentiates any number of times."
        )


def first_derivative_only(who: str, inputs: tuple[Tensor, ...], grads: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return ``grads``; under ``create_graph=True``, differentiating them raises a clear error.

    ``inputs`` are the tensors that they depend on: the incoming cotangent and the operation's own.
    """
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return grads
    return tuple(cast(Tensor, _NoSecondDerivative.apply(grad, who, *inputs)) for grad in grads)


def _operation(fake: Callable[..., Any]) -> Callable[[Callable[..., Any]], OpOverload]:
    """Register ``_name`` as ``isice::name``; ``fake`` gives torch.compile the result's shapes.

    ``torch.library.custom_op`` costs several times as much at each call: it also makes operations
    differentiable, and looks for results that share memory with arguments.
    """

    def register(function: Callable[..., Any]) -> OpOverload:
        name = function.__name__.removeprefix("_")
        schema = torch.library.infer_schema(function, mutates_args=())
        _LIBRARY.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
        torch.library.register_kernel(f"isice::{name}", None, function, lib=_LIBRARY)
        operation = cast(OpOverload, getattr(torch.ops.isice, name).default)
        torch.library.register_fake(operation, fake, lib=_LIBRARY)
        return operation

    return register


def _fake_newton_schulz(cov: Tensor, n_iter: int, kind: str, precision: str, vectorized: bool) -> Tensor:
    batch, size = cov.shape[0], cov.shape[-1]
    return cov.new_empty((batch, size * (size + 1) // 2) if vectorized else (batch, size, size))


@_operation(_fake_newton_schulz)
def _newton_schulz(cov: Tensor, n_iter: int, kind: str, precision: str, vectorized: bool) -> Tensor:
    from ..kernels.layout import from_tiles, to_tiles
    from ..kernels.newton_schulz import run

    D = cov.shape[-1]
    with torch.cuda.device_of(cov):
        return from_tiles(run(to_tiles(cov.contiguous(), D), D, n_iter, kind, precision)[0], D, vectorized)


@_operation(lambda cov, *_: cov.new_empty(cov.shape))
def _newton_schulz_vjp(cov: Tensor, grad: Tensor, n_iter: int, kind: str, precision: str) -> Tensor:
    from ..kernels.layout import from_tiles, to_tiles
    from ..kernels.newton_schulz import run

    D = cov.shape[-1]
    with torch.cuda.device_of(cov):
        tiles, direction = to_tiles(cov.contiguous(), D), to_tiles(grad.contiguous(), D, cotangent=True)
        return from_tiles(run(tiles, D, n_iter, kind, precision, cotangent=direction)[0], D)


def _fake_isice(cov: Tensor, lam: Tensor, eta: Tensor, betas: list[float], *_: Any) -> tuple[Tensor, ...]:
    from ..kernels.layout import tiled_shape

    batch, D = len(cov), cov.shape[-1]
    sigma, trace = cov.new_empty(tiled_shape(batch, D)), cov.new_empty((batch, 2))
    steps = sigma.new_empty((len(betas), *sigma.shape))
    mask = torch.empty_like(steps, dtype=torch.int8)
    return cov.new_empty((batch, D * (D + 1) // 2)), trace, sigma, torch.empty_like(trace), steps, mask


@_operation(_fake_isice)
def _isice(
    cov: Tensor, lam: Tensor, eta: Tensor, betas: list[float], n_inverse_iter: int, power: float, alpha: float,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    from ..kernels.isice import Settings, isice

    settings = Settings(list(betas), n_inverse_iter, power, alpha, precision)
    with torch.cuda.device_of(cov):
        return isice(cov.contiguous(), lam.contiguous(), eta.contiguous(), settings)


def _fake_isice_vjp(
    grad: Tensor, size: int, saved: list[Tensor], lam: Tensor, eta: Tensor, learned: bool, *_: Any
) -> tuple[Tensor, ...]:
    d_lam, d_eta = (torch.empty_like(value) if learned else value.new_empty(0) for value in (lam, eta))
    return grad.new_empty((len(grad), size, size)), d_lam, d_eta


@_operation(_fake_isice_vjp)
def _isice_vjp(
    grad: Tensor, size: int, saved: list[Tensor], lam: Tensor, eta: Tensor, learned: bool, betas: list[float],
    n_inverse_iter: int, power: float, alpha: float, precision: str,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    from ..kernels.isice import Saved, Settings, isice_vjp

    settings = Settings(list(betas), n_inverse_iter, power, alpha, precision)
    per_image = lam.contiguous(), eta.contiguous()
    with torch.cuda.device_of(grad):
        return isice_vjp(grad.contiguous(), size, Saved(*saved), *per_image, settings, learned)


def _fake_covariance(x: Tensor, precision: str) -> tuple[Tensor, Tensor]:
    batch, channels, _ = x.shape
    cov = x.new_empty((batch, channels, channels), dtype=torch.float32)
    return cov, x.new_empty((batch, 2, channels), dtype=torch.float32)


@_operation(_fake_covariance)
def _covariance(x: Tensor, precision: str) -> tuple[Tensor, Tensor]:
    from ..kernels.covariance import covariance

    with torch.cuda.device_of(x):
        return covariance(x, precision)


@_operation(lambda x, *_: torch.empty_like(x))
def _covariance_vjp(x: Tensor, channels: Tensor, grad: Tensor, precision: str) -> Tensor:
    from ..kernels.covariance import covariance_vjp

    with torch.cuda.device_of(x):
        return covariance_vjp(x, channels, grad.contiguous(), precision)


class FusedNewtonSchulz(torch.autograd.Function):
    """The iteration on (B, D, D); saves its input only."""

    @staticmethod
    def forward(ctx: Any, cov: Tensor, n_iter: int, kind: str, vectorized: bool) -> Tensor:
        ctx.save_for_backward(cov)
        ctx.settings, ctx.vectorized = (n_iter, kind, kernel_precision()), vectorized
        return cast(Tensor, _newton_schulz(cov, *ctx.settings, vectorized))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (cov,) = ctx.saved_tensors
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            # Kernels have no derivative of their own: under create_graph=True PyTorch's
            # operations take their place.
            from .newton_schulz import differentiable_vjp

            n_iter, kind, _ = ctx.settings
            return differentiable_vjp(cov, grads[0], n_iter, kind, ctx.vectorized), None, None, None
        return _newton_schulz_vjp(cov, grads[0], *ctx.settings), None, None, None


class FusedISICE(torch.autograd.Function):
    """Alg. 2 on (B, D, D), packed; saves Σ' and the S of each step. No second derivative."""

    @staticmethod
    def forward(ctx: Any, cov: Tensor, lam: Tensor, eta: Tensor, settings: tuple[Any, ...]) -> Tensor:
        ctx.settings, ctx.size = (*settings, kernel_precision()), cov.shape[-1]
        out, *saved = _isice(cov, lam, eta, *ctx.settings)
        ctx.save_for_backward(lam, eta, out, *saved)
        return cast(Tensor, out)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        lam, eta, *saved = ctx.saved_tensors
        with torch.no_grad():
            learned = any(ctx.needs_input_grad[1:3])
            result = _isice_vjp(grads[0], ctx.size, saved, lam, eta, learned, *ctx.settings)
        # The result represents Σ, which is not saved, in the graph: it depends on it.
        d_cov, *per_image = first_derivative_only("isice", (grads[0], saved[0], lam, eta), result)
        return (d_cov, *(per_image if learned else (None, None)), None)


class FusedCovariance(torch.autograd.Function):
    """Covariance in float32 of 16- or 32-bit features (B, C, N); saves them, means and bounds."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.precision = kernel_precision()
        cov, channels = _covariance(x, ctx.precision)
        ctx.save_for_backward(x, channels)
        return cast(Tensor, cov)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        x, channels = ctx.saved_tensors
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            from .covariance import differentiable_vjp

            return differentiable_vjp(x, grads[0])
        return cast(Tensor, _covariance_vjp(x, channels, grads[0], ctx.precision))
