"""Latent-variable graphical lasso: sparse minus low-rank precision, for unobserved variables."""

from typing import NamedTuple, cast

import torch
from torch import Tensor

from .graphical_lasso import DEFAULT_TOL
from .graphical_lasso.certified_admm import (
    RELAXATION,
    balance,
    certified_admm,
    checked_penalty,
    checked_problem,
    flat,
    inverse,
    log_det,
    norm,
    proximal_log_det,
    start_rho,
)
from .graphical_lasso.checks import common_shape

__all__ = ["LatentGraphicalLassoResult", "latent_graphical_lasso"]


class LatentGraphicalLassoResult(NamedTuple):
    """Solution of :func:`latent_graphical_lasso`.

    Attributes:
        precision: Θ − L (..., D, D), the precision of the observed variables.
        covariance: Its inverse (..., D, D).
        sparse: Θ (..., D, D), the precision given the latent variables, with exact zeros.
        low_rank: L (..., D, D) ⪰ 0; its rank estimates the number of latent variables.
        dual: Feasible dual point W (..., D, D), in float64: the gap follows from it.
        gap: Duality gap (...), in float64: the objective is at most this far above its minimum.
        n_iter: ADMM iterations (...).
    """

    precision: Tensor
    covariance: Tensor
    sparse: Tensor
    low_rank: Tensor
    dual: Tensor
    gap: Tensor
    n_iter: Tensor


class _State(NamedTuple):
    """Unfinished problems (B, D, D): (Θ, L) of the last step, (R, Θ, L) on R = Θ − L, and u."""

    cov: Tensor
    penalty: Tensor
    trace_penalty: Tensor  # μ (B, 1, 1)
    sparse: Tensor
    low_rank: Tensor
    v: Tensor  # subgradient of the ℓ₁ penalty at Θ, inside its box
    on_r: Tensor
    on_sparse: Tensor
    on_low_rank: Tensor
    u: Tensor
    rho: Tensor


def latent_graphical_lasso(
    cov: Tensor,
    sparsity: float | Tensor,
    trace_penalty: float | Tensor,
    *,
    weights: Tensor | None = None,
    scale: str | None = None,
    tol: float = DEFAULT_TOL,
    max_iter: int = 5000,
    init: LatentGraphicalLassoResult | None = None,
) -> LatentGraphicalLassoResult:
    r"""Sparse plus low-rank inverse covariance (Chandrasekaran, Parrilo and Willsky 2012).

    Minimises −logdet(Θ − L) + ⟨S, Θ − L⟩ + λ Σ_{i≠j} |Θ_ij| + μ tr L over Θ − L ≻ 0, L ⪰ 0.
    Variables that were not observed add the low-rank part L to the precision; Θ is the graph that
    remains when they are accounted for.

    ADMM alternates between the three proximal maps and the projection onto R = Θ − L (Ma,
    Xue and Zou 2013), which has two blocks and therefore converges. It computes in float64
    and is not differentiable.

    Args:
        cov: Covariance matrices S (..., D, D), positive semi-definite.
        sparsity: λ ≥ 0, one number or one per matrix, shape (...).
        trace_penalty: μ > 0, of the same shapes. A large μ gives L = 0, the graphical lasso.
        weights: Non-negative, symmetric factors of λ per entry, (..., D, D).
        scale: Unit of λ and μ: ``"correlation"``, the default, as if ``cov`` were correlations,
            with a result in the units of ``cov``; ``"raw"`` is the unit of ``cov``.
        tol: A matrix is finished when its gap is at most ``tol``·D.
        max_iter: Iterations after which a :class:`NotConvergedWarning` reports the gap reached.
        init: Result of a similar problem to start from.

    Returns:
        Precision, covariance, the sparse and the low-rank part, dual point, gap and iterations.

    Example:
        >>> cov = torch.eye(4) + 0.8 * torch.ones(4, 4)  # one common factor, no edges
        >>> result = latent_graphical_lasso(cov, 0.2, 0.2, scale="raw", tol=1e-8)
        >>> torch.linalg.matrix_rank(result.low_rank, tol=1e-6), torch.count_nonzero(result.sparse)
        (tensor(1), tensor(4))
    """
    who = "latent_graphical_lasso"
    standard, unit, off, scale = checked_problem(who, cov, scale, weights, tol, max_iter, sparsity, trace_penalty)
    penalty = checked_penalty(who, "sparsity", sparsity, off)
    mu = checked_penalty(who, "trace_penalty", trace_penalty, off, strict=True)
    shape = common_shape(who, cov, cov.shape[:-2], sparsity=penalty, trace_penalty=mu, weights=off)
    penalty = penalty * off
    if scale == "raw":
        penalty, mu = penalty / unit, mu / unit[..., :1, :1]
    state = _begin(standard, penalty, mu, unit, shape, init)
    final, _, n_iter = certified_admm(
        state,
        _iterate,
        lambda now: _gap(now, now.sparse, now.low_rank),
        bound=tol * cov.shape[-1],
        max_iter=max_iter,
        who=who,
    )
    return _result(final, n_iter, unit, shape, cov.dtype)


def _begin(
    standard: Tensor,
    penalty: Tensor,
    mu: Tensor,
    unit: Tensor,
    shape: torch.Size,
    init: LatentGraphicalLassoResult | None,
) -> _State:
    cov, penalty, mu = (flat(t, shape, 2) for t in (standard, penalty, mu))
    zero, rho = torch.zeros_like(cov), cov.new_ones(len(cov), 1, 1)
    if init is None:
        sparse, low_rank, v = torch.diag_embed(1 / cov.diagonal(dim1=-2, dim2=-1)), zero, zero
    else:
        given = (unit, init.sparse, init.low_rank, init.dual)
        units, sparse, low_rank, dual = (flat(t.detach().to(cov), shape, 2) for t in given)
        sparse, low_rank, v = sparse * units, low_rank * units, dual / units - cov
        rho = start_rho(v, sparse)
    return _State(cov, penalty, mu, sparse, low_rank, v, sparse - low_rank, sparse, low_rank, v / rho, rho)


def _iterate(state: _State, iteration: int) -> _State:
    """One over-relaxed step: the three proximal maps, then the projection onto R = Θ − L.

    The multipliers of the three variables are (u, −u, u), orthogonal to that subspace.
    """
    cov, rho, u = state.cov, state.rho, state.u
    r = proximal_log_det(cov + rho * (u - state.on_r), rho)
    moved = state.on_sparse + u
    v = torch.clamp(rho * moved, -state.penalty, state.penalty)
    sparse = torch.where((rho * moved).abs() > state.penalty, moved - v / rho, 0.0)
    low_rank = _shrink(state.on_low_rank - u, state.trace_penalty / rho)
    residual = r - sparse + low_rank
    change = RELAXATION / 3 * residual
    keep = 1 - RELAXATION
    on_r = RELAXATION * r + keep * state.on_r - change
    on_sparse = RELAXATION * sparse + keep * state.on_sparse + change
    on_low_rank = RELAXATION * low_rank + keep * state.on_low_rank - change
    u = u + change
    primal = norm(r - on_r, sparse - on_sparse, low_rank - on_low_rank) / norm(r, sparse, low_rank)
    moves = norm(on_r - state.on_r, on_sparse - state.on_sparse, on_low_rank - state.on_low_rank)
    dual = rho * moves / torch.sqrt(rho * norm(u, u, u) * norm(cov))
    factor = balance(primal, dual, iteration)
    return state._replace(
        sparse=sparse, low_rank=low_rank, v=v, on_r=on_r, on_sparse=on_sparse, on_low_rank=on_low_rank,
        u=u / factor, rho=rho * factor,
    )  # fmt: skip


def _shrink(matrix: Tensor, threshold: Tensor) -> Tensor:
    """Proximal point of the trace over positive semi-definite matrices."""
    values, vectors = torch.linalg.eigh(matrix)
    low_rank = (vectors * torch.relu(values - threshold.squeeze(-1)).unsqueeze(-2)) @ vectors.mT
    return cast(Tensor, 0.5 * (low_rank + low_rank.mT))


def _dual(state: _State) -> Tensor:
    """Return W = S + tV with the largest t ≤ 1 for which tV ⪰ −μI."""
    smallest = torch.linalg.eigvalsh(state.v)[..., :1, None]
    share = torch.where(smallest < -state.trace_penalty, -state.trace_penalty / smallest, 1.0)
    return state.cov + share * state.v


def _gap(state: _State, sparse: Tensor, low_rank: Tensor) -> Tensor:
    """Return the gap of Θ + εI and L + εI, feasible for the least eigenvalue −ε of L."""
    cov, mu = state.cov, state.trace_penalty.flatten()
    size, r = cov.shape[-1], sparse - low_rank
    negative = torch.relu(-torch.linalg.eigvalsh(low_rank)[..., 0])
    trace = low_rank.diagonal(dim1=-2, dim2=-1).sum(-1) + size * negative
    penalty = (state.penalty * sparse.abs()).sum((-2, -1)) + mu * trace
    gap = (cov * r).sum((-2, -1)) + penalty - log_det(r) - log_det(_dual(state)) - size
    return torch.where(torch.isfinite(gap), gap.clamp(min=0.0), torch.inf)


def _result(
    state: _State, n_iter: Tensor, unit: Tensor, shape: torch.Size, dtype: torch.dtype
) -> LatentGraphicalLassoResult:
    """Return to the units of the input; the gap is that of the matrices returned."""
    units = flat(unit, shape, 2)
    sparse, low_rank = ((part / units).to(dtype) for part in (state.sparse, state.low_rank))
    gap = _gap(state, sparse.double() * units, low_rank.double() * units)
    precision = sparse.double() - low_rank.double()
    dual = _dual(state) * units
    covariance = inverse(precision, dual)
    outputs = (precision.to(dtype), covariance.to(dtype), sparse, low_rank, dual, gap, n_iter)
    return LatentGraphicalLassoResult(*(t.reshape((*shape, *t.shape[1:])) for t in outputs))
