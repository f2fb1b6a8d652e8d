"""Maximum likelihood on a given graph (covariance selection, Dempster 1972)."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..ops.graphical_lasso.certificate import log_determinant
from ..ops.graphical_lasso.polish import solve_on_support

MAX_STEPS = 100


class Refit(NamedTuple):
    """Precision and covariance (D, D), duality gap (∞ without a maximum) and Newton steps."""

    precision: Tensor
    covariance: Tensor
    gap: float
    n_iter: int


def refit_on_support(cov: Tensor, precision: Tensor, *, tol: float) -> Refit:
    """Minimise −logdet Θ + ⟨S, Θ⟩ over the nonzero entries of ``precision`` by Newton's method.

    The dual is max logdet W + D over the W that agree with S on the graph, so Θ⁻¹ with those
    entries replaced by S gives the duality gap.

    Args:
        cov: Covariance matrix S (D, D) in float64.
        precision: The graph, and where to start if it is positive definite (D, D).
        tol: Largest duality gap, as a multiple of D.
    """
    deviation = cov.diagonal().sqrt()
    unit, size = torch.outer(deviation, deviation), len(cov)
    standard, support = (cov / unit)[None], (precision != 0)[None]
    theta = (precision * unit)[None]
    if not bool(torch.isfinite(log_determinant(theta))):
        theta = torch.eye(size, dtype=cov.dtype, device=cov.device)[None]
    value, gap, n_iter = _objective(standard, theta), torch.inf, 0
    while n_iter < MAX_STEPS:
        n_iter += 1
        inverse = torch.linalg.inv(theta)
        dual = torch.where(support, standard, 0.5 * (inverse + inverse.mT))
        gap = float(value - log_determinant(dual) - size)
        if gap <= tol * size:
            break
        direction = solve_on_support(inverse - standard, theta, inverse, support, tol=1e-6, max_iter=400)
        theta, value, moved = _line_search(standard, theta, direction, value)
        if not moved:
            break
    theta = theta[0] / unit
    return Refit(theta, torch.linalg.inv(theta), max(gap, 0.0), n_iter)


def _objective(cov: Tensor, theta: Tensor) -> float:
    return float((cov * theta).sum() - log_determinant(theta))


def _line_search(cov: Tensor, theta: Tensor, direction: Tensor, value: float) -> tuple[Tensor, float, bool]:
    """Halve the step until the objective falls."""
    for halving in range(40):
        trial = theta + direction * 0.5**halving
        changed = _objective(cov, trial)
        if changed < value:
            return trial, changed, True
    return theta, value, False
