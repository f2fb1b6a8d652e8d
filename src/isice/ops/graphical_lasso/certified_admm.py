"""Batched ADMM with a duality gap per problem, for the joint and latent graphical lassos."""

import warnings
from collections.abc import Callable
from typing import TypeVar, cast

import torch
from torch import Tensor

from ..._checks import check_int, check_number, check_square
from . import checked_scale
from .autograd import NotConvergedWarning
from .certificate import inverse_if_positive, log_determinant
from .checks import as_numbers, check_finite_symmetric, check_weights
from .theta_step import half_theta_by_eigh

RELAXATION = 1.6
SETTLE = 20  # iterations after which ρ changes less and less, so that ADMM converges
DAMPING = 0.25  # exponent of the residuals' ratio; 0.5 oscillates where there are three variables
State = TypeVar("State", bound=tuple[Tensor, ...])


def certified_admm(
    state: State,
    iterate: Callable[[State, int], State],
    duality_gap: Callable[[State], Tensor],
    *,
    bound: float,
    max_iter: int,
    who: str,
) -> tuple[State, Tensor, Tensor]:
    """Iterate until each gap is at most ``bound``; finished problems leave the batch.

    Args:
        state: Named tuple of tensors whose first dimension is the batch.
        iterate: One iteration of the whole batch; its second argument counts from one.
        duality_gap: Gap (B,) in float64.
        bound: Largest accepted gap.
        max_iter: Iterations after which the remaining problems are returned as they are, with a
            warning.
        who: Operation that the warning names.

    Returns:
        The final state in the order of the batch, the gap (B,) and the iterations (B,).
    """
    kind = type(state)
    if len(state[0]) == 0:
        return state, state[0].new_zeros(0), torch.zeros(0, dtype=torch.int64, device=state[0].device)
    place = torch.arange(len(state[0]), device=state[0].device)
    finished: list[tuple[Tensor, State, Tensor, Tensor]] = []
    next_check = 1
    for iteration in range(1, max_iter + 1):
        state = iterate(state, iteration)
        if iteration < next_check and iteration < max_iter:
            continue
        # A check costs less than an iteration; the interval keeps its share small in long runs.
        next_check = iteration + max(2, iteration // 20)
        gap = duality_gap(state)
        done = (gap <= bound) | (iteration == max_iter)
        if bool(done.any()):
            out = kind(*(tensor[done] for tensor in state))
            finished.append((place[done], out, gap[done], torch.full_like(place[done], iteration)))
            state, place = kind(*(tensor[~done] for tensor in state)), place[~done]
            if len(place) == 0:
                break
    order = torch.argsort(torch.cat([part[0] for part in finished]))
    tensors = (torch.cat(parts)[order] for parts in zip(*(part[1] for part in finished), strict=True))
    gap = torch.cat([part[2] for part in finished])[order]
    n_iter = torch.cat([part[3] for part in finished])[order]
    if bool((gap > bound).any()):
        unbounded = "no positive definite dual point was found, so raise the penalties if cov is singular"
        advice = unbounded if bool(torch.isinf(gap).any()) else "raise max_iter or tol"
        warnings.warn(
            f"{who}: {int((gap > bound).sum())} of {len(gap)} problems did not converge in {max_iter} iterations; the "
            f"largest duality gap is {float(gap.max()):.3g}, asked for was {bound:.3g}; {advice}.",
            NotConvergedWarning,
            stacklevel=3,
        )
    return kind(*tensors), gap, n_iter


def balance(primal: Tensor, dual: Tensor, iteration: int) -> Tensor:
    """Factor by which ρ changes so that the relative residuals of each problem become equal."""
    factor = (primal / dual).pow(DAMPING).nan_to_num(1.0, 1.0, 1.0).clamp(0.5, 2.0)
    return factor if iteration <= SETTLE else factor ** (SETTLE / iteration)


def proximal_log_det(b: Tensor, rho: Tensor) -> Tensor:
    """Positive definite root of Θ⁻¹ − ρΘ = B, exactly symmetric (..., D, D)."""
    half = half_theta_by_eigh(b, rho)
    return half + half.mT


def log_det(matrix: Tensor) -> Tensor:
    """Log-determinant (...) in float64; −∞ where a matrix is not positive definite."""
    return log_determinant(matrix.flatten(0, -3)).reshape(matrix.shape[:-2])


def inverse(matrix: Tensor, otherwise: Tensor) -> Tensor:
    """Return the inverse (..., D, D), ``otherwise`` where a matrix is not positive definite."""
    return inverse_if_positive(matrix.flatten(0, -3), otherwise.flatten(0, -3))[0].reshape(matrix.shape)


def norm(*tensors: Tensor) -> Tensor:
    """Return the joint Frobenius norm of each problem of the batch, its other dimensions kept."""
    norms = torch.stack([torch.linalg.vector_norm(t, dim=tuple(range(1, t.ndim)), keepdim=True) for t in tensors])
    return cast(Tensor, norms.norm(dim=0))


def start_rho(v: Tensor, precision: Tensor) -> Tensor:
    """Return the ρ of a warm start from its dual variable and precision."""
    rho = norm(v) / norm(precision)
    return torch.where(rho > 0, rho, 1.0)


def flat(tensor: Tensor, shape: torch.Size, dims: int) -> Tensor:
    """Expand the dimensions before the last ``dims`` to ``shape`` and flatten them to a batch."""
    last = tensor.shape[-dims:]
    return tensor.expand(*shape, *last).reshape(-1, *last)


def checked_problem(
    who: str, cov: Tensor, scale: str | None, weights: Tensor | None, tol: float, max_iter: int, *others: object
) -> tuple[Tensor, Tensor, Tensor, str]:
    """Return float64 matrices in the penalty's unit, the unit, the penalty's factors, the scale.

    With ``scale="raw"`` the unit is one number per matrix, the mean variance, which only helps
    ADMM; with ``"correlation"`` it is that of each pair of variables. ``others`` are further inputs
    of the operation; none may need a gradient.
    """
    check_square(who, cov)
    scale = checked_scale(who, scale, cov, scales=("raw", "correlation"))
    check_number(who, "tol", tol, strict=True)
    check_int(who, "max_iter", max_iter, minimum=1)
    if any(isinstance(value, Tensor) and value.requires_grad for value in (cov, weights, *others)):
        raise ValueError(f"{who}: expected input without gradient, because it is not differentiable; detach() it.")
    cov = cov.double()
    check_finite_symmetric(who, cov, cov.new_zeros(()))
    variance = cov.diagonal(dim1=-2, dim2=-1)
    if bool((variance <= 0).any()):
        raise ValueError(
            f"{who}: expected a positive variance for every variable, got {float(variance.min()):.3g}, for which the "
            "problem has no minimum; drop constant variables."
        )
    scales = variance.sqrt()
    unit = scales.unsqueeze(-1) * scales.unsqueeze(-2)
    if scale == "raw":
        unit = variance.mean(-1)[..., None, None].expand_as(cov)
    off = 1 - torch.eye(cov.shape[-1], dtype=cov.dtype, device=cov.device)
    if weights is not None:
        check_square(who, weights)
        if weights.shape[-1] != cov.shape[-1]:
            raise ValueError(
                f"{who}: expected weights (..., D, D) with D = {cov.shape[-1]}, got shape {tuple(weights.shape)}."
            )
        check_weights(who, weights)
        off = off * 0.5 * (weights + weights.mT).to(cov)
    return 0.5 * (cov + cov.mT) / unit, unit, off, scale


def checked_penalty(who: str, name: str, value: float | Tensor, like: Tensor, *, strict: bool = False) -> Tensor:
    """Return a finite penalty ≥ 0, or > 0, as (..., 1, 1) with the dtype and device of ``like``."""
    number = as_numbers(who, name, value, dtype=like.dtype, device=like.device)
    if not bool(((number > 0) if strict else (number >= 0)).all() and torch.isfinite(number).all()):
        raise ValueError(f"{who}: expected a finite {name} {'>' if strict else '≥'} 0, got {value}.")
    size = like.shape[-1]
    if number.shape[-2:] == (size, size) and number.ndim > like.ndim - 2 and size > 1:
        raise ValueError(
            f"{who}: expected {name} with one value per problem, got shape {tuple(number.shape)} for matrices "
            f"{tuple(like.shape)}; pass a penalty per entry as weights=, with {name}=1."
        )
    return number[..., None, None]
