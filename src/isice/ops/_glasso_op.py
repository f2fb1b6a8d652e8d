"""The graphical lasso as one opaque operator, so that compile and export see through the data-dependent loop."""

import math
import warnings
from typing import Any

import torch
from torch import Tensor

from ._glasso_admm import Solution, admm, duality_gap, inverse_where_positive
from ._glasso_newton import polish, solve_on_support
from ._glasso_screening import blocks_by_size, component_labels

POLISH_BELOW = 1e-9  # relative gaps below which Newton on the support is quicker than more ADMM
SINGLE_PRECISION_LIMIT = 1e-5  # relative gaps that float32 iterates cannot certify
INVERSE_ERROR = 1e-3  # ‖I − ΘW‖_F above which the inverse is not left to products
SINGLE_PRECISION_ITER = 100  # iterations in float32 after which the rest is done in float64


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

    ``root`` is ``"eigh"``, ``"newton_schulz"`` or ``"auto"`` (products on CUDA above the size where batched ``eigh``
    runs one by one). A matrix with an infinite or missing entry, or a variable without variance, gives NaN.
    """
    with torch.no_grad(), torch.autocast(cov.device.type, enabled=False):
        dtype = torch.float64 if tol < SINGLE_PRECISION_LIMIT else cov.dtype
        standard, weights, scale, sound = _standardize(cov.to(dtype), penalty.to(dtype), penalize_diagonal)
        first = None if init is None else _usable_start(init.to(dtype) * scale * scale.mT, sound)
        by_products = root == "newton_schulz" or (root == "auto" and cov.is_cuda and cov.shape[-1] > 32)
        precision, covariance, gap, n_iter = _solve_by_blocks(standard, weights, tol, max_iter, first, by_products)
        _warn_if_short(gap, tol * cov.shape[-1], max_iter)
        missing = ~sound[:, None, None]
        precision = (precision / (scale * scale.mT)).masked_fill_(missing, math.nan)
        covariance = (covariance * (scale * scale.mT)).masked_fill_(missing, math.nan)
        gap = gap.masked_fill(~sound, math.nan)
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
    cov = 0.5 * (cov + cov.mT)
    penalty = (0.5 * (penalty + penalty.mT)).expand_as(cov)
    variance = cov.diagonal(dim1=-2, dim2=-1)
    if penalize_diagonal:
        variance = variance + penalty.diagonal(dim1=-2, dim2=-1)
    sound = torch.isfinite(cov).flatten(1).all(-1) & torch.isfinite(penalty).flatten(1).all(-1) & (variance > 0).all(-1)
    scale = torch.where(sound[:, None], variance, 1.0).sqrt().unsqueeze(-1)
    units = scale * scale.mT
    safe = sound[:, None, None]
    standard = torch.where(safe, cov / units, 0.0)
    standard.diagonal(dim1=-2, dim2=-1).fill_(1.0)
    weights = torch.where(safe, penalty / units, 1.0)
    weights.diagonal(dim1=-2, dim2=-1).fill_(0.0)
    return standard, weights, scale, sound


def _usable_start(init: Tensor, sound: Tensor) -> Tensor:
    identity = torch.eye(init.shape[-1], dtype=init.dtype, device=init.device)
    usable = sound & torch.isfinite(init).flatten(1).all(-1)
    return torch.where(usable[:, None, None], 0.5 * (init + init.mT), identity)


def _solve_by_blocks(
    cov: Tensor, penalty: Tensor, tol: float, max_iter: int, init: Tensor | None, by_products: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Solves each connected component on its own; most matrices have one, and then nothing is copied."""
    batch, size, _ = cov.shape
    if batch == 0:
        return cov.clone(), cov.clone(), cov.new_zeros(0, dtype=torch.float64), cov.new_zeros(0, dtype=torch.int64)
    labels = component_labels(cov, penalty)
    if not bool(labels.any()):
        count = torch.full((batch,), size, device=cov.device)
        return _solve_connected(cov, penalty, count, tol, max_iter, init, by_products)
    precision = torch.eye(size, dtype=cov.dtype, device=cov.device).repeat(batch, 1, 1)
    covariance = precision.clone()
    gap = torch.zeros(batch, dtype=torch.float64, device=cov.device)
    n_iter = torch.zeros(batch, dtype=torch.int64, device=cov.device)
    for blocks in blocks_by_size(labels):
        first = None if init is None else blocks.gather(init, 1.0)
        parts = _solve_connected(
            blocks.gather(cov, 1.0), blocks.gather(penalty, 0.0), blocks.n_real, tol, max_iter, first, by_products
        )
        blocks.scatter_(precision, parts[0])
        blocks.scatter_(covariance, parts[1])
        gap.index_add_(0, blocks.owner, parts[2])
        n_iter.scatter_reduce_(0, blocks.owner, parts[3], "amax")
    return precision, covariance, gap, n_iter


def _solve_connected(
    cov: Tensor, penalty: Tensor, count: Tensor, tol: float, max_iter: int, init: Tensor | None, by_products: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """ADMM to a gap of ``tol`` per variable, or, where it is slow, ADMM as far as it is quick and Newton from there."""
    if not bool(penalty.any()):
        return _plain_inverse(cov)
    bound, quick = tol * count.double(), max(tol, POLISH_BELOW) * count.double()
    single = cov.dtype == torch.float32
    first_iter = min(max_iter, SINGLE_PRECISION_ITER) if single else max_iter
    solution = admm(cov, penalty, quick, max_iter=first_iter, init=init, newton_schulz=by_products)
    if not single and tol < POLISH_BELOW:
        solution = polish(cov, penalty, solution)
    # Not there yet: where rounding (or TF32) stands in the way, and where the polish met the wrong support.
    left = max_iter - first_iter if single else max_iter
    open_ = solution.gap > bound
    if left and bool(open_.any()) and (single or tol < POLISH_BELOW):
        solution = _continue(cov, penalty, bound, left, by_products, solution, open_)
    return solution.precision, _inverse(solution, by_products), solution.gap, solution.n_iter


def _continue(
    cov: Tensor, penalty: Tensor, bound: Tensor, max_iter: int, by_products: bool, solution: Solution, open_: Tensor
) -> Solution:
    """More ADMM in float64, from where it stands, for the matrices that are still open."""
    cov, penalty, start = (t[open_].double() for t in (cov, penalty, solution.precision))
    more = admm(cov, penalty, bound[open_], max_iter=max_iter, init=start, newton_schulz=by_products)
    more = polish(cov, penalty, more) if float(bound.min()) < POLISH_BELOW * cov.shape[-1] else more
    merged = [old.clone() for old in solution]
    for old, new in zip(merged[:3], more[:3], strict=True):
        old[open_] = new.to(old.dtype)
    merged[3][open_] += more.n_iter
    return Solution(*merged)


def _plain_inverse(cov: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Without a penalty the precision is the inverse; a singular matrix has none, and its gap is infinite."""
    identity = torch.eye(cov.shape[-1], dtype=cov.dtype, device=cov.device)
    precision, _ = inverse_where_positive(cov, identity)
    gap = duality_gap(cov, torch.zeros_like(cov), precision, cov)
    return precision, cov.clone(), gap, torch.zeros_like(gap, dtype=torch.int64)


def _inverse(solution: Solution, by_products: bool) -> Tensor:
    """The inverse of the precision by Cholesky factors, or by Newton's iteration from the dual point, which is near."""
    precision, inverse = solution.precision, solution.dual
    if not by_products:
        return inverse_where_positive(precision, inverse)[0]
    for _ in range(6):
        inverse = torch.baddbmm(inverse, inverse, _residual(precision, inverse))
    inverse = inverse.add(inverse.mT).mul_(0.5)
    failed = ~(torch.linalg.matrix_norm(_residual(precision, inverse)) < INVERSE_ERROR)
    if bool(failed.any()):
        exact, _ = inverse_where_positive(precision[failed].double(), solution.dual[failed].double())
        inverse[failed] = exact.to(inverse.dtype)
    return inverse


def _residual(matrix: Tensor, inverse: Tensor) -> Tensor:
    residual = torch.bmm(matrix, inverse).neg_()
    residual.diagonal(dim1=-2, dim2=-1).add_(1.0)
    return residual


def _warn_if_short(gap: Tensor, bound: float, max_iter: int) -> None:
    short = gap > bound
    if bool(short.any()):
        worst = float(gap.max())
        reason = (
            "no positive definite dual point was found, so the problem may have no solution: check that cov is "
            "positive semi-definite and that the weights are not zero where it is singular"
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
