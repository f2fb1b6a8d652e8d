"""Checks of the input: matrices, penalties and weights for which the problem has a solution."""

import math
from typing import Any

import torch
from torch import Tensor

MAX_ASYMMETRY = 1e-3  # of the product of the two standard deviations, or of the largest weight


def check_solvable(cov: Tensor, penalty: Tensor, weights: Tensor | None, penalize_diagonal: bool) -> None:
    """Raise ValueError on input for which the minimum does not exist or has no meaning."""
    who = "graphical_lasso"
    cov, penalty = cov.detach(), penalty.detach()
    if weights is not None:
        check_weights(who, weights.detach())
    check_finite_symmetric(who, cov, penalty)
    smallest = float(penalty.min()) if penalty.numel() else 1.0
    if smallest < 0:
        raise ValueError(f"{who}: expected sparsity ≥ 0, got {smallest:.3g}.")
    variance = cov.diagonal(dim1=-2, dim2=-1)
    if penalize_diagonal:
        full = penalty.expand(*penalty.shape[:-2], cov.shape[-1], cov.shape[-1])
        variance = variance + full.diagonal(dim1=-2, dim2=-1)
    if variance.numel() and float(variance.min()) < torch.finfo(cov.dtype).tiny:
        advice = "drop constant variables" if penalize_diagonal else "drop constant variables or penalize the diagonal"
        raise ValueError(
            f"{who}: expected a positive variance for every variable, got {float(variance.min()):.3g}, so the "
            f"problem has no minimum; {advice}, with scale='raw' or 'trace'."
        )
    unpenalized = smallest == 0 and bool((penalty == 0).flatten(-2).all(-1).any())
    if unpenalized and bool((torch.linalg.cholesky_ex(cov).info != 0).any()):
        raise ValueError(
            f"{who}: expected positive definite matrices where sparsity is 0, got a singular one, so the "
            "problem has no minimum; use a sparsity above 0."
        )


def as_numbers(who: str, name: str, value: Any, **options: Any) -> Tensor:
    """Return a tensor; raise TypeError unless ``value`` is a number or has numbers."""
    try:
        return torch.as_tensor(value, **options)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{who}: expected {name} as a number or a tensor, got {value!r}.") from error


def common_shape(who: str, cov: Tensor, batch: torch.Size, **penalties: Tensor) -> torch.Size:
    """Broadcast the shapes of the batch and of penalties (..., D, D) or (..., 1, 1)."""
    shapes = [penalty.shape[:-2] for penalty in penalties.values()]
    if all(shape in (batch, ()) for shape in shapes):
        return batch
    try:
        shape: torch.Size = torch.broadcast_shapes(batch, *shapes)
    except RuntimeError:
        got = ", ".join(f"{name} {tuple(shape)}" for name, shape in zip(penalties, shapes, strict=True) if shape)
        raise ValueError(
            f"{who}: expected one value of each penalty or one per problem, {tuple(batch)} for cov "
            f"{tuple(cov.shape)}, got shapes that do not broadcast: {got}."
        ) from None
    return shape


def check_weights(who: str, weights: Tensor) -> None:
    """Raise ValueError unless the weights are finite, non-negative and symmetric."""
    if not weights.numel():
        return
    weights = weights.double()
    smallest = float(weights.min())
    if not (smallest >= 0 and math.isfinite(float(weights.max()))):
        raise ValueError(
            f"{who}: expected finite weights ≥ 0, got {smallest:.3g} to {float(weights.max()):.3g}; a large number "
            "such as 1e6 forbids an entry."
        )
    asymmetry = (weights - weights.mT).abs()
    worst = int(asymmetry.argmax())
    if float(asymmetry.flatten()[worst]) > MAX_ASYMMETRY * float(weights.max()):
        row, column = worst // weights.shape[-1] % weights.shape[-1], worst % weights.shape[-1]
        raise ValueError(
            f"{who}: expected symmetric weights, got {float(weights.flatten()[worst]):.3g} and "
            f"{float(weights.mT.flatten()[worst]):.3g} for variables {row} and {column}; pass (W + Wᵀ)/2."
        )


def check_finite_symmetric(who: str, cov: Tensor, penalty: Tensor) -> None:
    """Raise ValueError unless matrices and penalties are finite and the matrices symmetric."""
    finite_penalty = math.isfinite(float(penalty.sum())) or bool(torch.isfinite(penalty).all())
    if finite_penalty and torch.equal(cov, cov.mT) and math.isfinite(float(cov.sum())):
        return
    # ∞ − ∞ is NaN, so the difference reveals every non-finite entry.
    asymmetry = (cov - cov.mT).abs_()
    largest = float(asymmetry.max()) if cov.numel() else 0.0
    if not (math.isfinite(largest) and finite_penalty):
        raise ValueError(f"{who}: expected finite matrices and penalties, got NaN or infinity; clean the input first.")
    variance = cov.diagonal(dim1=-2, dim2=-1).clamp(min=0)
    if largest <= MAX_ASYMMETRY * float(variance.min()):
        return
    deviation = variance.sqrt()
    excess = asymmetry - MAX_ASYMMETRY * deviation.unsqueeze(-1) * deviation.unsqueeze(-2)
    worst = int(excess.argmax())
    if float(excess.flatten()[worst]) > 0:
        row, column = worst // cov.shape[-1] % cov.shape[-1], worst % cov.shape[-1]
        raise ValueError(
            f"{who}: expected symmetric matrices, got an asymmetry of {float(asymmetry.flatten()[worst]):.3g} between "
            f"variables {row} and {column}, above {MAX_ASYMMETRY:g} of their standard deviations; "
            "pass features through covariance() first, or (S + Sᵀ)/2."
        )
