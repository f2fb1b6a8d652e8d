"""⑤ Exact sparse inverse covariance (paper, Eq. 1), with certificate and implicit gradient.

The public functions and the validation are here. :mod:`.autograd` is the operator and its gradient,
:mod:`.solver` the algorithm.
"""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..._checks import check_bool, check_choice, check_int, check_number, check_square, is_half
from .autograd import NotConvergedWarning, graphical_lasso_op, standardize, warn_unless_converged
from .certificate import inverse_if_positive
from .checks import as_numbers, check_solvable, common_shape
from .path import Point, cpu_path, extrapolated
from .solver import POLISH_BELOW

__all__ = [
    "GraphicalLassoResult",
    "NotConvergedWarning",
    "graphical_lasso",
    "graphical_lasso_path",
    "graphical_lasso_reference",
    "sparsity_max",
]

SCALES = ("raw", "correlation", "trace")
DEFAULT_SCALE = "correlation"
DEFAULT_TOL = 1e-6
PATH_SIZE = 32  # number of variables from which a path is faster matrix by matrix on a CPU


class GraphicalLassoResult(NamedTuple):
    """Solution of :func:`graphical_lasso`.

    Attributes:
        precision: Θ (..., D, D), symmetric positive definite, with exact zeros.
        covariance: Θ⁻¹ (..., D, D).
        gap: Duality gap (...) in float64, an upper bound on the objective minus its minimum.
        n_iter: Iterations (...): Newton steps of a sparse problem on a CPU, otherwise of ADMM.
        dual: Dual point W (..., D, D) in float64, with |W − S| ≤ Λ if the gap is finite. The gap is
            −logdet Θ + ⟨S, Θ⟩ + Σ Λ_ij|Θ_ij| − logdet W − D, in float64, of the S, Λ and Θ given
            and returned.
    """

    precision: Tensor
    covariance: Tensor
    gap: Tensor
    n_iter: Tensor
    dual: Tensor


def graphical_lasso(
    cov: Tensor,
    sparsity: float | Tensor,
    *,
    weights: Tensor | None = None,
    penalize_diagonal: bool = False,
    scale: str | None = None,
    tol: float = DEFAULT_TOL,
    max_iter: int = 5000,
    init: Tensor | GraphicalLassoResult | None = None,
    polish: bool | None = None,
    check_input: bool = True,
) -> GraphicalLassoResult:
    r"""Batched graphical lasso: min −logdet Θ + ⟨S, Θ⟩ + Σ Λ_ij|Θ_ij| over positive definite Θ.

    Every solution comes with its duality gap, an upper bound on its suboptimality. Gradients with
    respect to ``cov``, ``sparsity`` and ``weights`` follow from the optimality conditions and are
    as accurate as the solution, so a call that needs a gradient polishes it.

    Args:
        cov: Covariance matrices S (..., D, D), positive semi-definite, possibly singular if λ > 0.
        sparsity: λ ≥ 0, one number or one per matrix, shape (...).
        weights: Non-negative, symmetric factors of the penalty per entry (..., D, D).
        penalize_diagonal: Whether the diagonal of Θ is penalized too.
        scale: Unit of λ: ``"correlation"``, the default, sets Λ_ij = λ√(S_ii S_jj), as if the
            variables had unit variance; ``"raw"`` is that of ``cov``; ``"trace"`` sets Λ_ij =
            λ·tr S, the paper's unit. The result is always the precision of ``cov`` itself.
            With the default, a λ means the same for every dataset and layer, and the graph
            does not depend on units.
        tol: Largest accepted duality gap, as a multiple of D. At the default, which the estimators
            share, the edges are those of the minimum but for very few. In float32, a ``tol`` below
            1e-5 computes in float64: a layer on a GPU passes 1e-4, as the pooling ``sice`` does.
        max_iter: Iterations after which a :class:`NotConvergedWarning` reports the gap reached.
        init: Warm start: precision matrices, or an earlier result, close to the solution.
        polish: Whether the solution is refined in float64 to rounding accuracy, by Newton
            steps on its support, whatever ``tol``. By default it is if a gradient is needed.
            Without it, gradients are about 5 % off at ``tol=1e-4`` and 0.1 % at the default,
            and more where an edge is about to vanish. From ``tol=5e-4`` on, float32 also limits
            the steps of their linear system. A ``tol`` below 1e-9 polishes, too.
        check_input: Whether input without a solution raises an error. Otherwise matrices with
            non-finite entries or a variable without variance give NaN, and no check synchronises
            with the device.

    Returns:
        Precision, covariance, gap, iterations and dual point.

    Example:
        >>> cov = torch.tensor([[2.0, 0.5, 0.1], [0.5, 1.0, 0.0], [0.1, 0.0, 1.5]])
        >>> result = graphical_lasso(cov, 0.2, scale="correlation")
        >>> (result.precision != 0).int()
        tensor([[1, 1, 0],
                [1, 1, 0],
                [0, 0, 1]], dtype=torch.int32)
        >>> bool(result.gap <= 1e-6 * 3)
        True
    """
    cov = _checked_cov("graphical_lasso", cov)
    scale = checked_scale("graphical_lasso", scale, cov, warn=check_input)
    check_bool("graphical_lasso", penalize_diagonal=penalize_diagonal, check_input=check_input)
    check_number("graphical_lasso", "tol", tol, strict=True)
    check_int("graphical_lasso", "max_iter", max_iter, minimum=1)
    with torch.autocast(cov.device.type, enabled=False):
        penalty = _penalty("graphical_lasso", cov, sparsity, weights, scale)
        if check_input and not torch.compiler.is_compiling():
            check_solvable(cov, penalty, weights, penalize_diagonal)
        shape, size = common_shape("graphical_lasso", cov, cov.shape[:-2], penalty=penalty), cov.shape[-1]
        flat_cov = cov.expand(*shape, size, size).reshape(-1, size, size)
        flat_penalty = penalty.expand((*shape, *penalty.shape[-2:])).reshape((-1, *penalty.shape[-2:]))
        if polish is None:
            polish = torch.is_grad_enabled() and (cov.requires_grad or penalty.requires_grad)
        outputs = graphical_lasso_op(
            flat_cov, flat_penalty, penalize_diagonal, float(tol), max_iter, _flat_init(init, shape, cov), polish
        )
        return GraphicalLassoResult(*(t.reshape((*shape, *t.shape[1:])) for t in outputs))


def graphical_lasso_path(cov: Tensor, sparsities: Sequence[float] | Tensor, **options: Any) -> GraphicalLassoResult:
    """Solve for a grid of λ, descending, each from the extrapolation of the solutions before.

    Args:
        cov: Covariance matrices (..., D, D).
        sparsities: λ values (L,), in any order.
        **options: Options of :func:`graphical_lasso` other than ``init``.

    Returns:
        A result whose tensors have a new first dimension L, in the order of ``sparsities``.

    Example:
        >>> path = graphical_lasso_path(torch.tensor([[1.0, 0.5], [0.5, 1.0]]), [0.1, 0.6])
        >>> (path.precision[:, 0, 1] != 0).tolist()
        [True, False]
    """
    # Lists of numbers would become float32, which changes λ in the eighth digit.
    grid = sparsities
    if not isinstance(grid, Tensor):
        grid = as_numbers("graphical_lasso_path", "sparsities", grid, dtype=torch.float64)
    if grid.ndim != 1 or grid.numel() == 0:
        raise ValueError(f"graphical_lasso_path: expected sparsities (L,) with L ≥ 1, got shape {tuple(grid.shape)}.")
    cov = _checked_cov("graphical_lasso_path", cov)
    options["scale"] = checked_scale("graphical_lasso_path", options.get("scale"), cov)
    order = torch.argsort(grid, descending=True)
    path: list[Tensor] = []
    for place, result in zip(order.tolist(), solve_path(cov, grid[order], **options), strict=True):
        path = path or [tensor.new_empty(len(grid), *tensor.shape) for tensor in result]
        for whole, part in zip(path, result, strict=True):
            whole[place] = part
    return GraphicalLassoResult(*path)


def solve_path(cov: Tensor, sparsities: Tensor, **options: Any) -> Iterator[GraphicalLassoResult]:
    """Solve for descending λ (L,); only the last two solutions are kept, to start from."""
    if _suits_cpu_path(cov, sparsities, **options):
        yield from _cpu_path(cov, sparsities, **options)
        return
    points: list[Point] = []
    for sparsity in sparsities:
        init = None
        if points:
            precision, dual = extrapolated(cov, points, float(sparsity))
            init = GraphicalLassoResult(precision, precision, precision, precision, dual)
        result = graphical_lasso(cov, sparsity, init=init, **options)
        points = [*points[-1:], Point.of(float(sparsity), cov, result.precision, result.dual)]
        yield result


def _suits_cpu_path(
    cov: Tensor,
    sparsities: Tensor,
    *,
    weights: Tensor | None = None,
    penalize_diagonal: bool = False,
    tol: float = DEFAULT_TOL,
    polish: bool | None = None,
    check_input: bool = True,
    **_: Any,
) -> bool:
    inputs = [cov, sparsities] if weights is None else [cov, sparsities, weights]
    needs_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    plain = cov.dtype == torch.float64 and not cov.is_cuda and cov.numel() > 0 and cov.shape[-1] >= PATH_SIZE
    return plain and check_input and tol >= POLISH_BELOW and not (penalize_diagonal or polish or needs_gradient)


def _cpu_path(
    cov: Tensor,
    sparsities: Tensor,
    *,
    scale: str = DEFAULT_SCALE,
    weights: Tensor | None = None,
    tol: float = DEFAULT_TOL,
    max_iter: int = 5000,
    **_: Any,
) -> Iterator[GraphicalLassoResult]:
    unit, sparsities = _penalty("graphical_lasso_path", cov, 1.0, weights, scale), sparsities.cpu()
    for sparsity in sparsities[[0, -1]]:
        check_solvable(cov, unit * sparsity, weights, penalize_diagonal=False)
    shape, size = torch.broadcast_shapes(cov.shape[:-2], unit.shape[:-2]), cov.shape[-1]
    first, second = (m.expand(*shape, size, size).reshape(-1, size, size) for m in (cov, unit))
    standard, unit, deviation = standardize(first, second, penalize_diagonal=False)[:3]
    path = cpu_path(standard, unit, deviation, sparsities.tolist(), tol, max_iter)
    del first, second, standard, unit  # release their memory
    for outputs in path:
        warn_unless_converged(outputs, tol * size, max_iter, cov.dtype)
        yield GraphicalLassoResult(*(t.reshape((*shape, *t.shape[1:])) for t in outputs))
        del outputs


def sparsity_max(cov: Tensor, *, weights: Tensor | None = None, scale: str | None = None) -> Tensor:
    """Return the smallest λ (...) with a diagonal precision.

    It is the maximum of |S_ij|/(unit_ij·weight_ij) over i ≠ j. Arguments as in
    :func:`graphical_lasso`.

    Example:
        >>> sparsity_max(torch.tensor([[4.0, -0.5], [-0.5, 1.0]]), scale="correlation")
        tensor(0.2500)
    """
    cov = _checked_cov("sparsity_max", cov)
    scale = checked_scale("sparsity_max", scale, cov)
    unit = _penalty("sparsity_max", cov, 1.0, weights, scale)
    size = cov.shape[-1]
    off = ~torch.eye(size, dtype=torch.bool, device=cov.device)
    ratio = torch.where(off & (cov != 0), cov.abs() / unit, 0.0)
    return ratio.flatten(-2).amax(-1).to(cov.dtype)


def graphical_lasso_reference(
    cov: Tensor,
    sparsity: float,
    *,
    weights: Tensor | None = None,
    penalize_diagonal: bool = False,
    max_iter: int = 20000,
) -> Tensor:
    """Compute the precision of one well-conditioned matrix by proximal gradient; the oracle.

    It computes in float64 and shares no code with :func:`graphical_lasso`. Its linear convergence
    rate depends on the condition number.
    """
    cov = cov.double()
    penalty = sparsity * (torch.ones_like(cov) if weights is None else weights.double())
    if not penalize_diagonal:
        penalty = penalty - torch.diag(penalty.diagonal())
    theta, step = torch.diag(1 / (cov.diagonal() + penalty.diagonal())), 1.0
    inverse = torch.linalg.inv(theta)
    for _ in range(max_iter):
        gradient, smooth = cov - inverse, (cov * theta).sum() - torch.logdet(theta)
        while True:
            moved = theta - step * gradient
            trial = torch.sign(moved) * torch.relu(moved.abs() - step * penalty)
            change = trial - theta
            bound = smooth + (gradient * change).sum() + change.square().sum() / (2 * step)
            positive = torch.linalg.cholesky_ex(trial).info == 0
            if positive and (cov * trial).sum() - torch.logdet(trial) <= bound + 1e-13 * bound.abs():
                break
            step = step / 2
        theta = 0.5 * (trial + trial.T)
        if change.abs().max() <= 1e-12 * theta.abs().max():
            break
        previous, inverse = inverse, torch.linalg.inv(theta)
        # Barzilai–Borwein step size.
        step = float(change.square().sum() / (change * (previous - inverse)).sum())
    return theta


def checked_scale(
    who: str, scale: str | None, cov: Tensor, *, scales: Sequence[str] = SCALES, warn: bool = True
) -> str:
    """Return the unit of λ; warn where its default, once ``"raw"``, changes the result."""
    if scale is not None:
        check_choice(who, "scale", scale, scales)
        return scale
    variance = cov.detach().diagonal(dim1=-2, dim2=-1)
    if warn and not torch.compiler.is_compiling() and bool(((variance - 1).abs() > 1e-3).any()):
        warnings.warn(
            f"{who}: sparsity is on the scale of correlations unless scale is given; it was that of cov. Pass "
            f"scale={DEFAULT_SCALE!r} to accept the new default, or scale='raw' for the former results.",
            FutureWarning,
            stacklevel=3,
        )
    return DEFAULT_SCALE


def _checked_cov(who: str, cov: Tensor) -> Tensor:
    check_square(who, cov)
    return cov.float() if is_half(cov.dtype) else cov


def _penalty(who: str, cov: Tensor, sparsity: float | Tensor, weights: Tensor | None, scale: str) -> Tensor:
    """Return Λ in float64: (..., 1, 1) if all entries are equal, else (..., D, D)."""
    lam = as_numbers(who, "sparsity", sparsity, dtype=torch.float64, device=cov.device)
    size = cov.shape[-1]
    if lam.shape[-2:] == (size, size) and lam.ndim > cov.ndim - 2 and size > 1:
        raise ValueError(
            f"{who}: expected sparsity with one value per matrix, got shape {tuple(lam.shape)} for cov "
            f"{tuple(cov.shape)}; pass a penalty per entry as weights=, with sparsity=1. For several values per "
            "matrix add the dimensions to cov, as in cov[None]."
        )
    penalty = lam[..., None, None]
    if weights is not None and (not isinstance(weights, Tensor) or weights.shape[-2:] != cov.shape[-2:]):
        got = tuple(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
        raise ValueError(f"{who}: expected weights (..., D, D) like cov {tuple(cov.shape)}, got {got}.")
    common_shape(who, cov, cov.shape[:-2], sparsity=penalty, weights=penalty if weights is None else weights)
    if weights is not None:
        penalty = penalty * weights.to(penalty)
    if scale == "raw":
        return penalty
    variance = cov.diagonal(dim1=-2, dim2=-1).double()
    if scale == "correlation":
        # The square root of a variance of zero has no derivative.
        positive = variance > 0
        deviation = torch.where(positive, torch.where(positive, variance, 1.0).sqrt(), 0.0)
        return penalty * (deviation.unsqueeze(-1) * deviation.unsqueeze(-2))
    return penalty * variance.sum(-1)[..., None, None]


def _flat_init(init: Tensor | GraphicalLassoResult | None, shape: torch.Size, cov: Tensor) -> Tensor | None:
    """Return precision and dual of the warm start as (B, 2, D, D)."""
    if init is None:
        return None
    precision = init.precision if isinstance(init, GraphicalLassoResult) else init
    check_square("graphical_lasso", precision)
    size = cov.shape[-1]
    if precision.shape[-1] != size:
        raise ValueError(
            f"graphical_lasso: expected init of size {size} like cov, got {precision.shape[-1]}; pass a precision "
            "of the same variables."
        )
    first = precision.detach().to(cov)
    flat = first.reshape(-1, size, size)
    dual = init.dual if isinstance(init, GraphicalLassoResult) else inverse_if_positive(flat, flat)[0].view_as(first)
    both = torch.stack([first, dual.to(cov)], dim=-3)
    return both.expand(*shape, 2, size, size).reshape(-1, 2, size, size)
