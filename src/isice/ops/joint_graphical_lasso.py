"""Joint graphical lasso: sparse precision matrices of classes that share their structure."""

from typing import NamedTuple

import torch
from torch import Tensor

from .._checks import check_choice
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
from .graphical_lasso.fused import fuse_neighbours, fuse_pairs

__all__ = ["JointGraphicalLassoResult", "joint_graphical_lasso"]

PENALTIES = ("group", "fused", "time_varying")


class JointGraphicalLassoResult(NamedTuple):
    """Solution of :func:`joint_graphical_lasso`.

    Attributes:
        precision: Θ (..., K, D, D), one per class, with exact zeros.
        covariance: Θ⁻¹ (..., K, D, D).
        dual: Feasible dual point W (..., K, D, D), in float64: the gap follows from it.
        gap: Duality gap (...), in float64: the objective is at most this far above its minimum.
        n_iter: ADMM iterations (...).
    """

    precision: Tensor
    covariance: Tensor
    dual: Tensor
    gap: Tensor
    n_iter: Tensor


class _State(NamedTuple):
    """Unfinished problems: (B, K, D, D), penalties (B, 1, D, D), weights, ρ (B, 1, 1, 1)."""

    cov: Tensor
    sparsity: Tensor
    similarity: Tensor
    importance: Tensor
    z: Tensor
    v: Tensor
    rho: Tensor


def joint_graphical_lasso(
    cov: Tensor,
    sparsity: float | Tensor,
    similarity: float | Tensor,
    *,
    penalty: str = "group",
    class_weights: Tensor | None = None,
    weights: Tensor | None = None,
    scale: str | None = None,
    tol: float = DEFAULT_TOL,
    max_iter: int = 5000,
    init: JointGraphicalLassoResult | None = None,
) -> JointGraphicalLassoResult:
    r"""Sparse precision matrices of K classes with a common structure (Danaher et al. 2014).

    Minimises Σ_k n_k (−logdet Θ_k + ⟨S_k, Θ_k⟩) + λ₁ Σ_k Σ_{i≠j} |Θ_kij| + λ₂ P(Θ) over positive
    definite Θ_k. The group penalty P = Σ_{i≠j} (Σ_k Θ_kij²)^½ favours edges that all classes have
    or lack. The fused penalty P = Σ_{i≠j} Σ_{k<l} |Θ_kij − Θ_lij| favours equal entries. The
    time-varying penalty P = Σ_{i≠j} Σ_k |Θ_kij − Θ_(k−1)ij| takes the classes as periods in order
    (Hallac et al. 2017). The diagonal is not penalised.

    It computes in float64 and is not differentiable.

    Args:
        cov: Covariance matrices S (..., K, D, D), positive semi-definite.
        sparsity: λ₁ ≥ 0, one number or one per problem, shape (...).
        similarity: λ₂ ≥ 0, of the same shapes. With λ₂ = 0 the classes are separate.
        penalty: ``"group"``, ``"fused"`` or ``"time_varying"``.
        class_weights: n_k > 0, shape (K,), such as shares of the samples times K; 1 by default.
        weights: Non-negative, symmetric factors of both penalties per entry, (..., D, D).
        scale: Unit of the penalties: ``"correlation"``, the default, as if ``cov`` were
            correlations, with a result in the units of ``cov``; ``"raw"`` is the unit of ``cov``.
        tol: A problem is finished when its gap is at most ``tol``·K·D.
        max_iter: Iterations after which a :class:`NotConvergedWarning` reports the gap reached.
        init: Result of a similar problem to start from, for example of the next larger λ₁.

    Returns:
        Precision, covariance, dual point, gap and iterations.

    Example:
        >>> cov = torch.tensor([[[1.0, 0.5], [0.5, 1.0]], [[1.0, 0.1], [0.1, 1.0]]])
        >>> result = joint_graphical_lasso(cov, 0.05, 0.5, penalty="fused", tol=1e-8)
        >>> bool(result.precision[0, 0, 1] == result.precision[1, 0, 1] != 0)
        True
    """
    who = "joint_graphical_lasso"
    check_choice(who, "penalty", penalty, PENALTIES)
    standard, unit, off, scale = checked_problem(
        who, cov, scale, weights, tol, max_iter, sparsity, similarity, class_weights
    )
    if cov.ndim < 3 or cov.shape[-3] == 0:
        raise ValueError(f"{who}: expected one matrix per class (..., K, D, D), got {tuple(cov.shape)}; stack them.")
    if scale == "raw":  # one unit for all classes, which share penalties
        unit = unit.mean(-3, keepdim=True).expand_as(unit)
        standard = 0.5 * (cov + cov.mT).double() / unit
    state, shape = _begin(who, standard, unit, off, sparsity, similarity, class_weights, scale, init)
    final, _, n_iter = certified_admm(
        state,
        lambda now, iteration: _iterate(now, penalty, iteration),
        lambda now: _gap(now, now.z, penalty),
        bound=tol * cov.shape[-3] * cov.shape[-1],
        max_iter=max_iter,
        who=who,
    )
    return _result(final, n_iter, unit, shape, penalty, cov.dtype)


def _begin(
    who: str,
    standard: Tensor,
    unit: Tensor,
    off: Tensor,
    sparsity: float | Tensor,
    similarity: float | Tensor,
    class_weights: Tensor | None,
    scale: str,
    init: JointGraphicalLassoResult | None,
) -> tuple[_State, torch.Size]:
    first, second = checked_penalty(who, "sparsity", sparsity, off), checked_penalty(who, "similarity", similarity, off)
    shape = common_shape(who, standard, standard.shape[:-3], sparsity=first, similarity=second, weights=off)
    first, second = first * off, second * off
    if scale == "raw":
        first, second = first / unit[..., 0, :, :], second / unit[..., 0, :, :]
    classes = standard.shape[-3]
    importance = torch.ones(classes) if class_weights is None else torch.as_tensor(class_weights)
    if importance.shape != (classes,) or not bool((importance > 0).all()):
        raise ValueError(f"{who}: expected {classes} class_weights > 0, got {importance.tolist()}.")
    cov, first, second = (flat(t, shape, 3) for t in (standard, first.unsqueeze(-3), second.unsqueeze(-3)))
    importance = importance.to(cov)[:, None, None].expand(len(cov), classes, 1, 1)
    if init is None:
        z = torch.diag_embed(1 / cov.diagonal(dim1=-2, dim2=-1))
        v = torch.zeros_like(cov)
        rho = cov.new_ones(len(cov), 1, 1, 1)
    else:
        units, z, dual = (flat(t.detach().to(cov), shape, 3) for t in (unit, init.precision, init.dual))
        z, v = z * units, importance * (dual / units - cov)
        rho = start_rho(v, z)
    return _State(cov, first, second, importance, z, v, rho), shape


def _iterate(state: _State, penalty: str, iteration: int) -> _State:
    """Take an over-relaxed ADMM step; the dual variable V is inside the penalty's dual ball."""
    cov, n, z, rho = state.cov, state.importance, state.z, state.rho
    theta = proximal_log_det(cov + (state.v - rho * z) / n, rho / n)
    moved = state.v + rho * (RELAXATION * theta + (1 - RELAXATION) * z)
    after, v = _split(moved, state.sparsity, state.similarity, penalty)
    after = after / rho
    dual = rho * norm(after - z) / torch.sqrt(norm(v) * norm(n * cov))
    factor = balance(norm(theta - after) / norm(after), dual, iteration)
    return state._replace(z=after, v=v, rho=rho * factor)


def _split(moved: Tensor, sparsity: Tensor, similarity: Tensor, penalty: str) -> tuple[Tensor, Tensor]:
    """Return the penalty's proximal point and the remainder, in its dual ball."""
    if penalty != "group":
        fused = (fuse_pairs if penalty == "fused" else fuse_neighbours)(moved, similarity)
        clipped = torch.clamp(fused, -sparsity, sparsity)
        return fused - clipped, (moved - fused) + clipped
    clipped = torch.clamp(moved, -sparsity, sparsity)
    rest = moved - clipped
    length = torch.linalg.vector_norm(rest, dim=1, keepdim=True)
    share = torch.where(length > similarity, similarity / length, 1.0)
    return torch.where(length > similarity, rest * (1 - share), 0.0), clipped + rest * share


def _penalty_value(precision: Tensor, state: _State, penalty: str) -> Tensor:
    value = (state.sparsity * precision.abs()).sum((1, 2, 3))
    if penalty == "group":
        norms: Tensor = torch.linalg.vector_norm(precision, dim=1)
        return value + (state.similarity[:, 0] * norms).sum((1, 2))
    if penalty == "fused":
        difference = 0.5 * (precision.unsqueeze(1) - precision.unsqueeze(2)).abs().sum((1, 2))
    else:
        difference = precision.diff(dim=1).abs().sum(1)
    return value + (state.similarity[:, 0] * difference).sum((1, 2))


def _gap(state: _State, precision: Tensor, penalty: str) -> Tensor:
    """Primal objective at ``precision`` minus the dual one at W = S + V/n, per problem."""
    cov, n = state.cov, state.importance[..., 0, 0]
    size = cov.shape[-1]
    fit = (cov * precision).sum((-2, -1)) - log_det(precision) - log_det(cov + state.v / state.importance) - size
    gap = (n * fit).sum(1) + _penalty_value(precision, state, penalty)
    return torch.where(torch.isfinite(gap), gap.clamp(min=0.0), torch.inf)


def _result(
    state: _State, n_iter: Tensor, unit: Tensor, shape: torch.Size, penalty: str, dtype: torch.dtype
) -> JointGraphicalLassoResult:
    """Return to the units of the input; the gap is that of the matrices returned."""
    units = flat(unit, shape, 3)
    precision = (state.z / units).to(dtype)
    gap = _gap(state, precision.double() * units, penalty)
    dual = (state.cov + state.v / state.importance) * units
    outputs = (precision, inverse(precision.double(), dual).to(dtype), dual, gap, n_iter)
    return JointGraphicalLassoResult(*(t.reshape((*shape, *t.shape[1:])) for t in outputs))
