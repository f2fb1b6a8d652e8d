"""The graphical lasso as one opaque operator, so that compile and export see through the data-dependent loop."""

import math
import warnings
from typing import Any

import torch
from torch import Tensor

from .polish import solve_on_support
from .solver import SINGLE_PRECISION_LIMIT, solve_by_blocks


class NotConvergedWarning(RuntimeWarning):
    """The duality gap of some matrix is above the tolerance that was asked for."""


@torch.library.custom_op("isice::graphical_lasso", mutates_args=())
def graphical_lasso_op(
    cov: Tensor,
    penalty: Tensor,
    penalize_diagonal: bool,
    tol: float,
    max_iter: int,
    init: Tensor | None,
    root: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Precision, covariance, duality gap and iterations of matrices (B, D, D) for Λ (B, 1, 1) or (B, D, D).

    ``root`` is ``"eigh"``, ``"newton_schulz"`` or ``"auto"``: whichever is quicker. A matrix with an infinite or
    missing entry, or a variable without variance, gives NaN.
    """
    with torch.no_grad(), torch.autocast(cov.device.type, enabled=False):
        dtype = torch.float64 if tol < SINGLE_PRECISION_LIMIT else cov.dtype
        standard, weights, scale, sound = _standardize(cov.to(dtype), penalty.to(dtype), penalize_diagonal)
        first = None if init is None else _usable_start(init.to(dtype) * scale * scale.mT, sound)
        precision, covariance, gap, n_iter = solve_by_blocks(standard, weights, tol, max_iter, first, root)
        _warn_if_short(gap, tol * cov.shape[-1], max_iter)
        del standard, weights
        if not bool((scale == 1).all()):
            units = scale * scale.mT
            precision, covariance = precision.div_(units), covariance.mul_(units)
        if not bool(sound.all()):
            precision[~sound], covariance[~sound], gap[~sound] = math.nan, math.nan, math.nan
        return precision.to(cov.dtype).contiguous(), covariance.to(cov.dtype).contiguous(), gap.to(cov.dtype), n_iter


@graphical_lasso_op.register_fake
def _(cov, penalty, penalize_diagonal, tol, max_iter, init, root):
    shape = cov.shape[0]
    matrix = torch.empty_like(cov, memory_format=torch.contiguous_format)
    return matrix, torch.empty_like(matrix), cov.new_empty(shape), cov.new_empty(shape, dtype=torch.int64)


def _standardize(cov: Tensor, penalty: Tensor, penalize_diagonal: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Unit diagonal, Λ without diagonal, the scale (B, D, 1) that undoes it, and which matrices can be solved.

    At the optimum W_ii = S_ii + Λ_ii exactly, so the diagonal penalty joins S; the duality gap does not depend on
    the units of the variables.
    """
    cov = (cov + cov.mT).mul_(0.5)
    penalty = 0.5 * (penalty + penalty.mT)
    finite = _finite(cov) & _finite(penalty)
    penalty = penalty.expand_as(cov)
    variance = cov.diagonal(dim1=-2, dim2=-1).clone()
    if penalize_diagonal:
        variance = variance + penalty.diagonal(dim1=-2, dim2=-1)
    sound = finite & (variance > 0).all(-1)
    scale = torch.where(sound[:, None], variance, 1.0).sqrt().unsqueeze(-1)
    if bool((scale == 1).all()):  # correlation matrices are
        standard, weights = cov, penalty.clone(memory_format=torch.contiguous_format)
    else:
        units = scale * scale.mT
        standard, weights = cov.div_(units), penalty / units
    if not bool(sound.all()):
        standard, weights = (t.masked_fill(~sound[:, None, None], v) for t, v in ((standard, 0.0), (weights, 1.0)))
    standard.diagonal(dim1=-2, dim2=-1).fill_(1.0)
    weights.diagonal(dim1=-2, dim2=-1).fill_(0.0)
    return standard, weights, scale, sound


def _finite(matrices: Tensor) -> Tensor:
    """Which matrices have finite entries only; the extremes are NaN where an entry is."""
    if not matrices.numel():
        return torch.ones(len(matrices), dtype=torch.bool, device=matrices.device)
    smallest, largest = matrices.flatten(1).aminmax(dim=1)
    return torch.isfinite(smallest) & torch.isfinite(largest)


def _usable_start(init: Tensor, sound: Tensor) -> Tensor:
    identity = torch.eye(init.shape[-1], dtype=init.dtype, device=init.device)
    usable = sound & _finite(init)
    return torch.where(usable[:, None, None], 0.5 * (init + init.mT), identity)


def _warn_if_short(gap: Tensor, bound: float, max_iter: int) -> None:
    short = gap > bound
    if bool(short.any()):
        worst = float(gap.max())
        reason = (
            "no positive definite dual point was found, so the problem may have no solution: check that cov is "
            "positive semi-definite and that the weights are not zero where it is singular; a singular matrix with a "
            "tiny sparsity may only need a larger max_iter"
            if math.isinf(worst)
            else "raise max_iter or tol"
        )
        warnings.warn(
            f"graphical_lasso: {int(short.sum())} of {gap.numel()} matrices did not converge in {max_iter} iterations; "
            f"the largest duality gap is {worst:.3g}, asked for was {bound:.3g}; {reason}.",
            NotConvergedWarning,
            stacklevel=2,
        )


@torch.library.custom_op("isice::graphical_lasso_backward", mutates_args=())
def graphical_lasso_backward_op(grad: Tensor, precision: Tensor, covariance: Tensor) -> Tensor:
    """−∂L/∂S for G = ∂L/∂Θ: the V on the support of Θ with P_A(W V W) = P_A(G)."""
    with torch.no_grad(), torch.autocast(grad.device.type, enabled=False):
        support = precision != 0
        support.diagonal(dim1=-2, dim2=-1).fill_(True)
        tol = 1e-5 if grad.dtype == torch.float32 else 1e-11
        return solve_on_support(
            0.5 * (grad + grad.mT), precision, covariance, support, tol=tol, max_iter=400
        ).contiguous()


@graphical_lasso_backward_op.register_fake
def _(grad, precision, covariance):
    return torch.empty_like(precision, memory_format=torch.contiguous_format)


def _refuse(ctx: Any, grad: Tensor) -> None:
    raise RuntimeError(
        "graphical_lasso: expected a first derivative, got a request for a second one, which is not implemented; "
        "call backward() or autograd.grad() without create_graph=True."
    )


graphical_lasso_backward_op.register_autograd(_refuse)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(output[0], output[1])
    ctx.penalize_diagonal, ctx.scalar_penalty = inputs[2], inputs[1].shape[-1] != inputs[0].shape[-1]
    ctx.mark_non_differentiable(output[2], output[3])


def _backward(ctx: Any, grad_precision: Tensor | None, grad_covariance: Tensor | None, *_: Any) -> tuple[Any, ...]:
    precision, covariance = ctx.saved_tensors
    grad = torch.zeros_like(precision) if grad_precision is None else grad_precision
    if grad_covariance is not None:
        grad = grad - covariance @ grad_covariance.mT @ covariance
    v = graphical_lasso_backward_op(grad.contiguous(), precision, covariance)
    grad_penalty = None
    if ctx.needs_input_grad[1]:
        grad_penalty = -v * precision.sign()
        if not ctx.penalize_diagonal:
            off = 1 - torch.eye(v.shape[-1], dtype=v.dtype, device=v.device)
            grad_penalty = grad_penalty * off
        if ctx.scalar_penalty:
            grad_penalty = grad_penalty.sum((-2, -1), keepdim=True)
    return -v, grad_penalty, None, None, None, None, None


graphical_lasso_op.register_autograd(_backward, setup_context=_save)
