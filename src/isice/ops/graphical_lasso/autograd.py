"""The graphical lasso as a custom operator: units, certificate and implicit gradient."""

import math
import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .certificate import chunks, duality_gap, inverse_if_positive
from .polish import MAX_STEPS, solve_on_support
from .solver import SATURATE, SINGLE_PRECISION_LIMIT, Outputs, exceeds_largest_penalty, largest_penalty, solve

# Accuracy and largest number of steps of an unpolished float32 gradient's system; the solution
# itself is off by 1 to 20 %.
ROUGH_GRADIENT, ROUGH_STEPS = 1e-3, 400
ROUGH_TOL = 5e-4  # tolerance from which on the gradient's system is solved to its own error only
ROUGHEST_GRADIENT, ROUGHEST_STEPS = 0.1, 24
POLISHED = 1e-10  # relative gap to solve for where a gradient is needed; Newton's method goes beyond it


class NotConvergedWarning(RuntimeWarning):
    """The duality gap of at least one matrix is above the requested tolerance."""


class Problem(NamedTuple):
    """S (B, D, D), penalties Λ (B, 1, 1) or (B, D, D), and whether they apply to the diagonal."""

    cov: Tensor
    penalty: Tensor
    penalize_diagonal: bool

    def select(self, index: Tensor) -> "Problem":
        """Return some of the problems."""
        return Problem(self.cov[index], self.penalty[index], self.penalize_diagonal)

    def solve(self, dtype: torch.dtype, tol: float, max_iter: int, init: Tensor | None) -> Outputs:
        """Solve in ``dtype``; precision and covariance are rounded to the dtype of the input.

        The gap is that of the standardized problem. In float64 it is that of the result, too.
        """
        penalty = _limited(self.penalty, dtype).to(dtype)
        standard, weights, scale, solvable = standardize(self.cov.to(dtype), penalty, self.penalize_diagonal)
        del penalty
        limited = exceeds_largest_penalty(standard, weights)
        if limited:
            limit = largest_penalty(standard)
            forbidden = weights > limit
            torch.minimum(weights, limit, out=weights)
        start = None if init is None else _finite_start(init.to(dtype), scale * scale.mT, solvable)
        result = solve(standard, weights, tol, max_iter, start)
        del standard, weights
        if not bool((scale == 1).all()):
            units = scale * scale.mT
            result.precision.div_(units)
            result.covariance.mul_(units)
            result.dual.mul_(units)
        result = result._replace(
            precision=result.precision.to(self.cov.dtype), covariance=result.covariance.to(self.cov.dtype)
        )
        if not bool(solvable.all()):
            for tensor in (result.precision, result.covariance, result.gap, result.dual):
                tensor[~solvable] = math.nan
        if limited:
            result.precision.masked_fill_(forbidden, 0.0)
        return self.certify(result) if limited and self.cov.dtype == torch.float64 else result

    def certify(self, result: Outputs) -> Outputs:
        """Return the result with a feasible dual and the gap of the given S, Λ, Θ in float64."""
        dual = torch.empty_like(result.dual, dtype=torch.float64)
        gap = torch.empty_like(result.gap)
        for part in chunks(torch.arange(len(gap), device=gap.device), self.cov.shape[-1]):
            cov, penalty = _symmetric(self.cov[part].double()), _symmetric(_limited(self.penalty[part].double()))
            penalty = penalty.expand_as(cov).clone()
            if not self.penalize_diagonal:
                penalty.diagonal(dim1=-2, dim2=-1).zero_()
            theta = result.precision[part].double()
            v = result.dual[part].double().sub_(cov)
            if result.dual.dtype == torch.float32:
                v.add_(theta, alpha=SATURATE)  # where Θ is not zero the dual is at its bound, which float32 may miss
            v.clamp_(-penalty, penalty)
            dual[part] = v.add_(cov)
            gap[part] = duality_gap(cov, penalty, theta, v)
        gap = torch.where(torch.isnan(result.gap), math.nan, gap)
        return result._replace(gap=gap, dual=dual)


def standardize(cov: Tensor, penalty: Tensor, penalize_diagonal: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return S with unit diagonal, Λ with zero diagonal, the scale (B, D, 1) and solvability (B,).

    At the optimum W_ii = S_ii + Λ_ii, so a penalty on the diagonal is added to S. The duality gap
    does not depend on the units of the variables.
    """
    cov = (cov + cov.mT).mul_(0.5)
    penalty = _symmetric(penalty)
    finite = _is_finite(cov) & _is_finite(penalty)
    penalty = penalty.expand_as(cov)
    variance = cov.diagonal(dim1=-2, dim2=-1).clone()
    if penalize_diagonal:
        variance = variance + penalty.diagonal(dim1=-2, dim2=-1)
    # The reciprocal of a smaller variance overflows.
    solvable = finite & (variance >= torch.finfo(cov.dtype).tiny).all(-1)
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


def _limited(penalty: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return a penalty that is finite in ``dtype``, even if two entries are added."""
    return penalty.clamp(max=0.25 * torch.finfo(dtype).max)


def _symmetric(matrix: Tensor) -> Tensor:
    return 0.5 * (matrix + matrix.mT)


def _is_finite(matrices: Tensor) -> Tensor:
    """Return per matrix whether all entries are finite; the extrema propagate NaN."""
    if not matrices.numel():
        return torch.ones(len(matrices), dtype=torch.bool, device=matrices.device)
    flat = matrices.flatten(1)  # two passes are faster than aminmax, which is not vectorised
    return (flat.amin(1) > -math.inf) & (flat.amax(1) < math.inf)


def _finite_start(init: Tensor, units: Tensor, solvable: Tensor) -> Tensor:
    """Return standardized precision and dual (B, 2, D, D), I where they are not finite."""
    identity = torch.eye(init.shape[-1], dtype=init.dtype, device=init.device)
    start = torch.stack([init[:, 0] * units, init[:, 1] / units], dim=1)
    usable = solvable & _is_finite(start)
    return torch.where(usable[:, None, None, None], _symmetric(start), identity)


@torch.library.custom_op("isice::graphical_lasso", mutates_args=())
def graphical_lasso_op(
    cov: Tensor,
    penalty: Tensor,
    penalize_diagonal: bool,
    tol: float,
    max_iter: int,
    init: Tensor | None,
    polish: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Solve matrices (B, D, D) for Λ (B, 1, 1) or (B, D, D), in float64.

    ``init`` has the precision and the dual to start from (B, 2, D, D). Return precision,
    covariance, gap, iterations and dual. A matrix with a non-finite entry, a penalty of NaN or a
    variable without variance gives NaN; a penalty of infinity forbids an entry.
    """
    with torch.no_grad(), torch.autocast(cov.device.type, enabled=False):
        problem = Problem(cov, penalty, penalize_diagonal)
        wanted = min(tol, POLISHED) if polish else tol
        double = cov.dtype == torch.float64 or wanted < SINGLE_PRECISION_LIMIT
        result = problem.solve(torch.float64 if double else cov.dtype, wanted, max_iter, init)
        if cov.dtype != torch.float64:
            result = problem.certify(result)
            failed = result.gap > tol * cov.shape[-1]  # in float64, of the result as rounded
            if not double and bool(failed.any()):
                result = _continue_in_float64(problem, result, failed, wanted, max_iter)
        warn_unless_converged(result, tol * cov.shape[-1], max_iter, cov.dtype)
        return tuple(tensor.contiguous() for tensor in result)  # type: ignore[return-value]


@graphical_lasso_op.register_fake
def _(cov: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    batch = cov.shape[0]
    matrix = torch.empty_like(cov, memory_format=torch.contiguous_format)
    gap, n_iter = cov.new_empty(batch, dtype=torch.float64), cov.new_empty(batch, dtype=torch.int64)
    return matrix, torch.empty_like(matrix), gap, n_iter, torch.empty_like(matrix, dtype=torch.float64)


def _continue_in_float64(problem: Problem, result: Outputs, failed: Tensor, tol: float, max_iter: int) -> Outputs:
    """Solve the matrices whose float32 result misses the tolerance again, a chunk at a time."""
    for part in chunks(failed.nonzero()[:, 0]):
        chosen = problem.select(part)
        init = torch.stack([result.precision[part].double(), result.dual[part]], dim=1)
        more = chosen.certify(chosen.solve(torch.float64, tol, max_iter, init))
        more = more._replace(n_iter=result.n_iter[part] + more.n_iter)
        for old, new in zip(result, more, strict=True):
            old[part] = new
    return result


def warn_unless_converged(result: Outputs, bound: float, max_iter: int, dtype: torch.dtype) -> None:
    """Warn of gaps above ``bound``, with what to do about them."""
    above = result.gap > bound
    if bool(above.any()):
        worst, iterations = float(result.gap.max()), int(result.n_iter[above].max())
        advice = (
            "no positive definite dual point was found, so the problem may have no solution: check that cov is "
            "positive semi-definite and that the weights are not zero where it is singular; a singular matrix with a "
            "tiny sparsity may only need a larger max_iter"
            if math.isinf(worst)
            else "raise max_iter or tol"
            if dtype == torch.float64 or iterations >= max_iter
            else "float32 does not represent a more accurate result; raise tol or pass float64"
        )
        warnings.warn(
            f"graphical_lasso: {int(above.sum())} of {len(above)} matrices did not converge in {iterations} "
            f"iterations; expected a duality gap of at most {bound:.3g}, the largest gap is {worst:.3g}; {advice}.",
            NotConvergedWarning,
            stacklevel=2,
        )


@torch.library.custom_op("isice::graphical_lasso_backward", mutates_args=())
def graphical_lasso_backward_op(
    grad: Tensor, precision: Tensor, covariance: Tensor, tol: float, polish: bool
) -> Tensor:
    """Return −∂L/∂S for G = ∂L/∂Θ: the V on the support of Θ with P_A(W V W) = P_A(G).

    A polished float32 solution is differentiated in float64. An unpolished one of a large ``tol``
    gets a few steps only, because its own error dominates the gradient's.
    """
    with torch.no_grad(), torch.autocast(grad.device.type, enabled=False):
        support = precision != 0
        support.diagonal(dim1=-2, dim2=-1).fill_(True)
        rhs, dtype = 0.5 * (grad + grad.mT), grad.dtype
        if polish and dtype != torch.float64:
            rhs, precision = rhs.double(), precision.double()
            covariance, _ = inverse_if_positive(precision, covariance.double())
        accuracy, steps = 1e-11, MAX_STEPS
        if rhs.dtype == torch.float32:
            accuracy, steps = (ROUGHEST_GRADIENT, ROUGHEST_STEPS) if tol >= ROUGH_TOL else (ROUGH_GRADIENT, ROUGH_STEPS)
        v = solve_on_support(rhs, precision, covariance, support, tol=accuracy, max_iter=steps)
        return v.to(dtype).contiguous()


@graphical_lasso_backward_op.register_fake
def _(grad: Tensor, precision: Tensor, covariance: Tensor, tol: float, polish: bool) -> Tensor:
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
    ctx.tol, ctx.polish, ctx.penalty_dtype = inputs[3], inputs[6], inputs[1].dtype
    ctx.mark_non_differentiable(output[2], output[3], output[4])


def _backward(ctx: Any, grad_precision: Tensor | None, grad_covariance: Tensor | None, *_: Any) -> tuple[Any, ...]:
    precision, covariance = ctx.saved_tensors
    grad = torch.zeros_like(precision) if grad_precision is None else grad_precision
    if grad_covariance is not None:
        grad = grad - covariance @ grad_covariance.mT @ covariance
    v = graphical_lasso_backward_op(grad.contiguous(), precision, covariance, ctx.tol, ctx.polish)
    grad_penalty = None
    if ctx.needs_input_grad[1]:
        grad_penalty = -v * precision.sign()
        if not ctx.penalize_diagonal:
            off = 1 - torch.eye(v.shape[-1], dtype=v.dtype, device=v.device)
            grad_penalty = grad_penalty * off
        if ctx.scalar_penalty:
            grad_penalty = grad_penalty.sum((-2, -1), keepdim=True)
        grad_penalty = grad_penalty.to(ctx.penalty_dtype)
    return -v, grad_penalty, None, None, None, None, None


graphical_lasso_op.register_autograd(_backward, setup_context=_setup_context)
