"""The graphical lasso as a custom operator with an implicit gradient."""

import math
import warnings
from typing import Any

import torch
from torch import Tensor

from .polish import solve_on_support
from .solver import SINGLE_PRECISION_LIMIT, Outputs, solve


class NotConvergedWarning(RuntimeWarning):
    """The duality gap of at least one matrix is above the requested tolerance."""


@torch.library.custom_op("isice::graphical_lasso", mutates_args=())
def graphical_lasso_op(
    cov: Tensor, penalty: Tensor, penalize_diagonal: bool, tol: float, max_iter: int, init: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Solve matrices (B, D, D) for Λ (B, 1, 1) or (B, D, D).

    Return precision, covariance, gap and iterations. A matrix with a non-finite entry or a variable
    without variance gives NaN.
    """
    with torch.no_grad(), torch.autocast(cov.device.type, enabled=False):
        dtype = torch.float64 if tol < SINGLE_PRECISION_LIMIT else cov.dtype
        standard, weights, scale, solvable = _standardize(cov.to(dtype), penalty.to(dtype), penalize_diagonal)
        start = None if init is None else _finite_start(init.to(dtype) * scale * scale.mT, solvable)
        precision, covariance, gap, n_iter = solve(standard, weights, tol, max_iter, start)
        _warn_unless_converged(gap, tol * cov.shape[-1], max_iter)
        del standard, weights
        if not bool((scale == 1).all()):
            units = scale * scale.mT
            precision, covariance = precision.div_(units), covariance.mul_(units)
        if not bool(solvable.all()):
            precision[~solvable], covariance[~solvable], gap[~solvable] = math.nan, math.nan, math.nan
        return precision.to(cov.dtype).contiguous(), covariance.to(cov.dtype).contiguous(), gap.to(cov.dtype), n_iter


@graphical_lasso_op.register_fake
def _(cov: Tensor, penalty: Tensor, penalize_diagonal: bool, tol: float, max_iter: int, init: Tensor | None) -> Outputs:
    batch = cov.shape[0]
    matrix = torch.empty_like(cov, memory_format=torch.contiguous_format)
    return matrix, torch.empty_like(matrix), cov.new_empty(batch), cov.new_empty(batch, dtype=torch.int64)


def _standardize(cov: Tensor, penalty: Tensor, penalize_diagonal: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return S with unit diagonal, Λ with zero diagonal, the scale (B, D, 1) and solvability (B,).

    At the optimum W_ii = S_ii + Λ_ii, so a penalty on the diagonal is added to S. The duality gap
    does not depend on the units of the variables.
    """
    cov = (cov + cov.mT).mul_(0.5)
    penalty = 0.5 * (penalty + penalty.mT)
    finite = _is_finite(cov) & _is_finite(penalty)
    penalty = penalty.expand_as(cov)
    variance = cov.diagonal(dim1=-2, dim2=-1).clone()
    if penalize_diagonal:
        variance = variance + penalty.diagonal(dim1=-2, dim2=-1)
    solvable = finite & (variance > 0).all(-1)
    scale = torch.where(solvable[:, None], variance, 1.0).sqrt().unsqueeze(-1)
    if bool((scale == 1).all()):
        standard, weights = cov, penalty.clone(memory_format=torch.contiguous_format)
    else:
        units = scale * scale.mT
        standard, weights = cov.div_(units), penalty / units
    if not bool(solvable.all()):
        unsolvable = ~solvable[:, None, None]
        standard, weights = standard.masked_fill(unsolvable, 0.0), weights.masked_fill(unsolvable, 1.0)
    standard.diagonal(dim1=-2, dim2=-1).fill_(1.0)
    weights.diagonal(dim1=-2, dim2=-1).fill_(0.0)
    return standard, weights, scale, solvable


def _is_finite(matrices: Tensor) -> Tensor:
    """Return per matrix whether all entries are finite; aminmax propagates NaN."""
    if not matrices.numel():
        return torch.ones(len(matrices), dtype=torch.bool, device=matrices.device)
    smallest, largest = matrices.flatten(1).aminmax(dim=1)
    return torch.isfinite(smallest) & torch.isfinite(largest)


def _finite_start(init: Tensor, solvable: Tensor) -> Tensor:
    identity = torch.eye(init.shape[-1], dtype=init.dtype, device=init.device)
    usable = solvable & _is_finite(init)
    return torch.where(usable[:, None, None], 0.5 * (init + init.mT), identity)


def _warn_unless_converged(gap: Tensor, bound: float, max_iter: int) -> None:
    above = gap > bound
    if bool(above.any()):
        worst = float(gap.max())
        advice = (
            "no positive definite dual point was found, so the problem may have no solution: check that cov is "
            "positive semi-definite and that the weights are not zero where it is singular; a singular matrix with a "
            "tiny sparsity may only need a larger max_iter"
            if math.isinf(worst)
            else "raise max_iter or tol"
        )
        warnings.warn(
            f"graphical_lasso: {int(above.sum())} of {gap.numel()} matrices did not converge in {max_iter} iterations; "
            f"expected a duality gap of at most {bound:.3g}, the largest gap is {worst:.3g}; {advice}.",
            NotConvergedWarning,
            stacklevel=2,
        )


@torch.library.custom_op("isice::graphical_lasso_backward", mutates_args=())
def graphical_lasso_backward_op(grad: Tensor, precision: Tensor, covariance: Tensor) -> Tensor:
    """Return −∂L/∂S for G = ∂L/∂Θ: the V on the support of Θ with P_A(W V W) = P_A(G)."""
    with torch.no_grad(), torch.autocast(grad.device.type, enabled=False):
        support = precision != 0
        support.diagonal(dim1=-2, dim2=-1).fill_(True)
        tol = 1e-5 if grad.dtype == torch.float32 else 1e-11
        rhs = 0.5 * (grad + grad.mT)
        return solve_on_support(rhs, precision, covariance, support, tol=tol, max_iter=400).contiguous()


@graphical_lasso_backward_op.register_fake
def _(grad: Tensor, precision: Tensor, covariance: Tensor) -> Tensor:
    return torch.empty_like(precision, memory_format=torch.contiguous_format)


def _no_second_derivative(ctx: Any, grad: Tensor) -> None:
    raise RuntimeError(
        "graphical_lasso: expected a first derivative, got a request for a second one, which is not implemented; "
        "call backward() or autograd.grad() without create_graph=True."
    )


graphical_lasso_backward_op.register_autograd(_no_second_derivative)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
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
    return -v, grad_penalty, None, None, None, None


graphical_lasso_op.register_autograd(_backward, setup_context=_setup_context)
