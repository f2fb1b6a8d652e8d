"""Solver of standardized problems: Newton's method on a CPU if they are sparse, otherwise ADMM."""

import itertools
from dataclasses import replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from .admm import Solution, Strategy, admm
from .certificate import chunks, duality_gap, duality_gap_and_inverse, inverse_if_positive, rows
from .newton import Iterate, links, local_start, newton
from .polish import polish
from .screening import blocks_by_size, component_labels
from .small import SMALL_SIZE, small_admm
from .start import Start, cold_start, warm_start

POLISH_BELOW = 1e-9  # relative gap below which Newton's method on the support is faster than ADMM
SINGLE_PRECISION_LIMIT = 1e-5  # relative gap that float32 iterates can certify
ROUGH_LIMIT = 3e-6  # relative gap at which float64 takes over unless Θ-steps reuse Θ
SINGLE_PRECISION_ITER = 100  # iterations in float32 after which float64 continues
CACHED_ENTRIES = 2**17  # matrix entries that a CPU processes at a time
SATURATE = 1e60  # large enough to saturate the clamp for any nonzero float32
WHOLE_SIZE = 256  # size up to which Newton's method solves a sparse matrix faster whole than by components
SMALL_BATCH = 3  # number of small matrices up to which solving them one by one is faster on a CPU
INVERSE_ERROR = 1e-3  # ‖I − ΘW‖_F above which the inverse by products is replaced by Cholesky


class Outputs(NamedTuple):
    """Precision, covariance, dual W (B, D, D), gap (B,) in float64 and iterations (B,)."""

    precision: Tensor
    covariance: Tensor
    gap: Tensor
    n_iter: Tensor
    dual: Tensor


def solve(
    cov: Tensor,
    penalty: Tensor,
    tol: float,
    max_iter: int,
    init: Tensor | None = None,
    strategy: Strategy | None = None,
) -> Outputs:
    """Solve each connected component of each matrix; a matrix that is one component is not copied.

    Args:
        cov: Matrices S (B, D, D) with a unit diagonal.
        penalty: Λ (B, D, D) with a zero diagonal.
        tol: Largest gap per variable.
        max_iter: Largest number of ADMM iterations.
        init: Precision and dual to start from (B, 2, D, D).
        strategy: Algorithms to use; by default the fastest for each phase.

    Returns:
        Precision, covariance, gap, iterations and dual. Of float32 problems the gap is an estimate.
    """
    batch, size, _ = cov.shape
    if batch == 0:
        gap, n_iter = cov.new_zeros(0, dtype=torch.float64), cov.new_zeros(0, dtype=torch.int64)
        return Outputs(cov.clone(), cov.clone(), gap, n_iter, cov.clone())
    if _suit_numpy(cov, strategy):
        return solve_connected(cov, penalty, torch.full((batch,), size), tol, max_iter, init, strategy)
    newton_suits = strategy is None and not cov.is_cuda and cov.dtype == torch.float64 and size > SMALL_SIZE
    if newton_suits and tol >= POLISH_BELOW:
        return _solve_each(cov, penalty, tol, max_iter, init)
    return _solve_by_components(cov, penalty, tol, max_iter, init, strategy)


def largest_penalty(cov: Tensor) -> Tensor:
    """Return a bound (B, 1, 1) above which a penalty makes no difference, for a unit diagonal.

    A positive definite W with unit diagonal has |W_ij| < 1, so |W_ij − S_ij| ≤ Λ_ij never binds for
    Λ_ij ≥ 1 + |S_ij|, and Θ_ij is zero. Larger numbers slow ADMM down and overflow.
    """
    return 2 * torch.maximum(-cov.amin((-2, -1), keepdim=True), cov.amax((-2, -1), keepdim=True))


def exceeds_largest_penalty(cov: Tensor, penalty: Tensor) -> bool:
    """Return whether a penalty (B, D, D) is above :func:`largest_penalty`, at least two."""
    if not penalty.numel() or float(penalty.max()) <= 2.0:
        return False
    return bool((penalty.amax((-2, -1), keepdim=True) > largest_penalty(cov)).any())


def _solve_by_components(
    cov: Tensor, penalty: Tensor, tol: float, max_iter: int, init: Tensor | None, strategy: Strategy | None
) -> Outputs:
    batch, size, _ = cov.shape
    labels = component_labels(cov, penalty)
    if not bool(labels.any()):
        count = torch.full((batch,), size, device=cov.device)
        return solve_connected(cov, penalty, count, tol, max_iter, init, strategy)
    precision = torch.eye(size, dtype=cov.dtype, device=cov.device).repeat(batch, 1, 1)
    covariance, dual = precision.clone(), precision.clone()
    gap = torch.zeros(batch, dtype=torch.float64, device=cov.device)
    n_iter = torch.zeros(batch, dtype=torch.int64, device=cov.device)
    # A third of the batch at a time keeps the working memory within that of a connected batch.
    third = cov.numel() // 3
    for blocks in itertools.chain.from_iterable(blocks.split(third) for blocks in blocks_by_size(labels)):
        first = None if init is None else torch.stack([blocks.gather(m, 1.0) for m in init.unbind(1)], dim=1)
        parts = solve_connected(
            blocks.gather(cov, 1.0), blocks.gather(penalty, 0.0), blocks.n_real, tol, max_iter, first, strategy
        )
        blocks.scatter_(precision, parts.precision)
        blocks.scatter_(covariance, parts.covariance)
        blocks.scatter_(dual, parts.dual)
        gap.index_add_(0, blocks.owner, parts.gap)
        n_iter.scatter_reduce_(0, blocks.owner, parts.n_iter, "amax")
    return Outputs(precision, covariance, gap, n_iter, dual)


def solve_connected(
    cov: Tensor,
    penalty: Tensor,
    count: Tensor,
    tol: float,
    max_iter: int,
    init: Tensor | None,
    strategy: Strategy | None,
) -> Outputs:
    """Run ADMM to a gap of ``tol`` per variable, or to POLISH_BELOW and then Newton's method."""
    penalized = penalty.flatten(1).any(1)
    if not bool(penalized.all()):
        return _solve_penalized(penalized, cov, penalty, count, tol, max_iter, init, strategy)
    chosen = strategy or Strategy.fastest(cov)
    quick = max(tol, POLISH_BELOW) * count.double()
    single = cov.dtype == torch.float32
    inverse = None
    if _suit_numpy(cov, strategy):
        solution, inverse = _one_by_one(cov, penalty, quick, max_iter, init)
    elif single or chosen.float32_first:
        # Corrected Θ-steps have no cancellation: float32 reaches the tolerance and float64 only
        # certifies it.
        limit = SINGLE_PRECISION_LIMIT if single else POLISH_BELOW if chosen.reuse_theta else ROUGH_LIMIT
        rough = max(tol, limit) * count.double()
        solution, inverse = _in_single_precision(cov, penalty, rough, max_iter, init, strategy)
        if bool((solution.gap > quick).any()):
            init = inverse = None  # release their memory
            solution = _in_double_precision(cov, penalty, quick, max_iter, strategy, solution)
    else:
        solution = admm(
            cov, penalty, quick, _start(cov, penalty, init, chosen.inverse), max_iter=max_iter, strategy=chosen
        )
    if not single and tol < POLISH_BELOW:
        solution, inverse = polish(cov, penalty, solution), None
        bound = tol * count.double()
        if bool((solution.gap > bound).any()):  # the support was wrong
            more = _in_double_precision(cov, penalty, bound, 2 * max_iter, strategy, solution)
            solution = polish(cov, penalty, more)
    inverse = _inverse(solution, chosen) if inverse is None else inverse
    return Outputs(solution.precision, inverse, solution.gap, solution.n_iter, solution.dual)


def _suit_numpy(cov: Tensor, strategy: Strategy | None) -> bool:
    few_and_small = len(cov) <= SMALL_BATCH and cov.shape[-1] <= SMALL_SIZE
    return strategy is None and not cov.is_cuda and cov.dtype == torch.float64 and few_and_small


def _one_by_one(
    cov: Tensor, penalty: Tensor, bound: Tensor, max_iter: int, init: Tensor | None
) -> tuple[Solution, Tensor]:
    inits = itertools.repeat(None) if init is None else init.unbind()
    problems = zip(cov.unbind(), penalty.unbind(), bound.tolist(), inits, strict=False)
    parts = [small_admm(*problem, max_iter) for problem in problems]
    if len(parts) == 1:
        return parts[0]
    solutions, inverses = zip(*parts, strict=True)
    return Solution(*(torch.cat(tensors) for tensors in zip(*solutions, strict=True))), torch.cat(inverses)


def _solve_each(cov: Tensor, penalty: Tensor, tol: float, max_iter: int, init: Tensor | None) -> Outputs:
    """Solve the sparse matrices one by one by Newton's method and the others as a batch by ADMM."""
    found = [
        _solve_sparse(cov[i], penalty[i], tol, max_iter, None if init is None else init[i]) for i in range(len(cov))
    ]
    rest = [i for i, outputs in enumerate(found) if outputs is None]
    if len(rest) == len(cov):
        return _solve_by_components(cov, penalty, tol, max_iter, init, None)
    parts, order = [outputs for outputs in found if outputs is not None], [i for i in range(len(cov)) if found[i]]
    if rest:
        first = None if init is None else init[rest]
        parts.append(_solve_by_components(cov[rest], penalty[rest], tol, max_iter, first, None))
    return parts[0] if len(parts) == 1 else _in_order(parts, torch.tensor(order + rest))


def _in_order(parts: list[Outputs], places: Tensor) -> Outputs:
    """Join parts of a batch whose problems belong at ``places``."""
    back = torch.argsort(places)
    return Outputs(*(torch.cat(tensors)[back] for tensors in zip(*parts, strict=True)))


def _solve_sparse(cov: Tensor, penalty: Tensor, tol: float, max_iter: int, init: Tensor | None) -> Outputs | None:
    """Solve one matrix (D, D) by Newton's method; None if ADMM is faster or it fails."""
    size, graph = len(cov), links(cov, penalty)
    if graph is None and init is None:
        return _solve_by_inverse(cov[None], penalty[None], tol * size)
    # With less than one link per variable a random graph has small components only, mostly trees.
    forest = graph is not None and len(graph.row) < 2 * size
    if graph is None or (forest and size > WHOLE_SIZE):
        return None
    theta = local_start(cov, penalty, graph) if init is None or forest else init[0].clone()
    found = newton(cov, penalty, tol * size, Iterate.of(theta), max_iter)
    if found is None:
        return None
    solution, last = found
    return Outputs(solution.precision, last.inverse[None], solution.gap, solution.n_iter, solution.dual)


def _solve_by_inverse(cov: Tensor, penalty: Tensor, bound: float) -> Outputs | None:
    """Return the inverse of S − Λ·sign S if it is optimal, as it is on rank one."""
    excess = torch.clamp(cov, -penalty, penalty).neg_()
    dual = cov + excess
    if bool((dual == 0).any()):
        return None
    precision, positive = inverse_if_positive(dual, cov)
    if not bool(positive) or bool((precision * excess < 0).any()):
        return None
    gap = duality_gap(cov, penalty, precision, dual)
    none = torch.zeros(1, dtype=torch.int64)
    return Outputs(precision, dual.clone(), gap, none, dual) if float(gap) <= bound else None


def _start(cov: Tensor, penalty: Tensor, init: Tensor | None, inverse: Literal["cholesky", "products"]) -> Start:
    if init is None:
        return cold_start(cov, penalty, inverse=inverse)
    return warm_start(cov, penalty, *init.unbind(1))


def _in_single_precision(
    cov: Tensor, penalty: Tensor, bound: Tensor, max_iter: int, init: Tensor | None, strategy: Strategy | None
) -> tuple[Solution, Tensor | None]:
    """Run ADMM in float32; return the solution in the input's dtype and, if known, the inverse."""
    native = cov.dtype == torch.float32
    chosen = strategy or Strategy.fastest(cov[:0].float())
    accelerate, warm = not (native or cov.is_cuda), init is not None
    chosen = replace(chosen, certificate="estimate", stop_stalled=True, accelerate=accelerate, warm=warm)
    limit = 0.95 * bound  # margin for the error of the estimate
    size = max(1, CACHED_ENTRIES // cov[0].numel()) if chosen.reuse_theta else len(cov)
    inits = itertools.repeat(None) if init is None else init.float().split(size)
    parts = [
        admm(
            part_cov,
            part_penalty,
            part_limit,
            _start(part_cov, part_penalty, part_init, chosen.inverse),
            max_iter=min(max_iter, SINGLE_PRECISION_ITER),
            strategy=chosen,
        )
        for part_cov, part_penalty, part_limit, part_init in zip(
            cov.float().split(size), penalty.float().split(size), limit.split(size), inits, strict=False
        )
    ]
    solution = parts[0] if len(parts) == 1 else Solution(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))
    if native:
        return solution._replace(gap=_infinite_where_lost(cov, penalty, solution, bound)), None
    precision, n_iter, rho = solution.precision.double(), solution.n_iter, solution.rho.double()
    # Where Z is not zero the dual is at its bound, which float32 may not represent.
    dual = solution.dual.double().sub_(cov).add_(precision, alpha=SATURATE).clamp_(-penalty, penalty).add_(cov)
    del parts, solution  # release their memory
    if chosen.inverse == "products":
        gap, inverse = duality_gap(cov, penalty, precision, dual), None
    else:
        gap, inverse = duality_gap_and_inverse(cov, penalty, precision, dual)
    return Solution(precision, dual, gap, n_iter, rho), inverse


def _infinite_where_lost(cov: Tensor, penalty: Tensor, solution: Solution, bound: Tensor) -> Tensor:
    """Return the estimated gaps; above the bound, exact ones, ∞ where definiteness is lost."""
    gap = solution.gap.clone()
    for part in chunks((~(gap <= bound)).nonzero()[:, 0]):
        gap[part] = duality_gap(cov[part], penalty[part], solution.precision[part], solution.dual[part])
    return gap


def _in_double_precision(
    cov: Tensor, penalty: Tensor, bound: Tensor, max_iter: int, strategy: Strategy | None, solution: Solution
) -> Solution:
    """Continue ADMM in float64 for the matrices above their bound, a chunk at a time."""
    still_open = (solution.gap > bound) & (solution.n_iter < max_iter)
    if not bool(still_open.any()):
        return solution
    merged = None
    chosen = replace(strategy or Strategy.fastest(cov[:0].double()), warm=True)
    for part in chunks(still_open.nonzero()[:, 0]):
        part_cov, part_penalty = rows(cov, part).double(), rows(penalty, part).double()
        more = admm(
            part_cov,
            part_penalty,
            bound[part],
            _continued(part_cov, part_penalty, solution, part, chosen),
            max_iter=max_iter - int(solution.n_iter[part].max()),
            strategy=chosen,
        )
        more = more._replace(n_iter=solution.n_iter[part] + more.n_iter)
        if len(part) == len(cov):
            return Solution(*(new.to(old.dtype) for old, new in zip(solution, more, strict=True)))
        merged = merged or Solution(*(tensor.clone() for tensor in solution))
        for old, new in zip(merged, more, strict=True):
            old[part] = new.to(old.dtype)
    return merged or solution


def _continued(cov: Tensor, penalty: Tensor, solution: Solution, part: Tensor, strategy: Strategy) -> Start:
    """Return the iterates, or a cold start where float32 lost positive definiteness."""
    current, lost = solution.start(part, cov.dtype), torch.isinf(solution.gap[part])[:, None, None]
    if not bool(lost.any()):
        return current
    cold = _start(cov, penalty, None, strategy.inverse)
    return Start(*(torch.where(lost, new, old) for new, old in zip(cold, current, strict=True)))


def _solve_penalized(
    penalized: Tensor,
    cov: Tensor,
    penalty: Tensor,
    count: Tensor,
    tol: float,
    max_iter: int,
    init: Tensor | None,
    strategy: Strategy | None,
) -> Outputs:
    """Run ADMM on the penalized matrices only: without a penalty its ρ would fall to zero."""
    free, rest = (~penalized).nonzero()[:, 0], penalized.nonzero()[:, 0]
    inverted = _unpenalized(rows(cov, free))
    if len(rest) == 0:
        return inverted
    first = None if init is None else init[rest]
    solved = solve_connected(cov[rest], penalty[rest], count[rest], tol, max_iter, first, strategy)
    return _in_order([inverted, solved], torch.cat([free, rest]))


def _unpenalized(cov: Tensor) -> Outputs:
    """Return the inverse, the solution without penalty; a singular matrix gets an infinite gap."""
    identity = torch.eye(cov.shape[-1], dtype=cov.dtype, device=cov.device)
    precision, _ = inverse_if_positive(cov, identity)
    gap = duality_gap(cov, torch.zeros_like(cov), precision, cov)
    return Outputs(precision, cov.clone(), gap, torch.zeros_like(gap, dtype=torch.int64), cov.clone())


def _inverse(solution: Solution, strategy: Strategy) -> Tensor:
    """Invert the precision by Cholesky, or by Newton's iteration from the dual, which is close."""
    precision, inverse = solution.precision, solution.dual
    if strategy.inverse == "cholesky":
        return inverse_if_positive(precision, inverse)[0]
    for _ in range(4):  # each squares the error, which the duality gap bounds
        inverse = torch.baddbmm(inverse, inverse, _residual(precision, inverse))
    inverse = inverse.add(inverse.mT).mul_(0.5)
    failed = ~(torch.linalg.matrix_norm(_residual(precision, inverse)) < INVERSE_ERROR)
    if bool(failed.any()):
        for part in chunks(failed.nonzero()[:, 0]):
            exact, _ = inverse_if_positive(precision[part].double(), solution.dual[part].double())
            inverse[part] = exact.to(inverse.dtype)
    return inverse


def _residual(matrix: Tensor, inverse: Tensor) -> Tensor:
    residual = torch.bmm(matrix, inverse).neg_()
    residual.diagonal(dim1=-2, dim2=-1).add_(1.0)
    return residual
