"""Newton's method for the graphical lasso on a fixed support, and its linear system."""

import torch
from torch import Tensor

from .._linalg import inner
from .admm import Solution
from .certificate import chunks, duality_gap, inverse_if_positive, log_determinant

MAX_STEPS = 2000  # of conjugate gradients; singular matrices with a small λ take about a thousand


def solve_on_support(
    rhs: Tensor, precision: Tensor, covariance: Tensor, support: Tensor, *, tol: float, max_iter: int
) -> Tensor:
    """Solve P_A(W V W) = P_A(R) for V on the support A by preconditioned conjugate gradients.

    The preconditioner is P_A(Θ · Θ). It is the exact inverse if A has every entry, and the
    iteration is invariant to the units of the variables.

    Args:
        rhs: R (B, D, D), symmetric; overwritten.
        precision: Θ (B, D, D).
        covariance: W = Θ⁻¹ (B, D, D).
        support: A (B, D, D), boolean, symmetric, diagonal included.
        tol: Relative size of the preconditioned residual to stop at.
        max_iter: Largest number of steps.
    """
    outside = ~support
    residual = rhs.masked_fill_(outside, 0.0)
    solution = torch.zeros_like(rhs)
    direction = _projected_product(precision, residual, outside)
    energy = inner(residual, direction)
    goal = tol * tol * energy
    for step in range(max_iter):
        # The comparison synchronises with the device, so it is made every fourth step.
        if step % 4 == 0 and not bool((energy > goal).any()):
            break
        image = _projected_product(covariance, direction, outside)
        curvature = inner(direction, image)
        running = (energy > goal) & (curvature > 0)
        length = torch.where(running, energy / curvature, 0.0)
        solution.addcmul_(length, direction)
        residual.addcmul_(length, image, value=-1)
        del image  # release its memory before the next product
        preconditioned = _projected_product(precision, residual, outside)
        renewed = inner(residual, preconditioned)
        ratio = torch.where(running, renewed / energy, 0.0)
        direction = torch.addcmul(preconditioned, direction, ratio, out=direction)
        energy = renewed
    return solution.mul_(2)  # of the doubled operator


def _projected_product(matrix: Tensor, middle: Tensor, outside: Tensor) -> Tensor:
    """Return 2 P_A(M X M), exactly symmetric; the factor saves a pass."""
    left = torch.bmm(matrix, middle)
    product = torch.bmm(left, matrix)
    return torch.add(product, product.mT, out=left).masked_fill_(outside, 0.0)


def polish(cov: Tensor, penalty: Tensor, solution: Solution) -> Solution:
    """Refine an ADMM solution to rounding accuracy; a matrix changes only if its gap decreases.

    Entries that change sign leave the support; entries that violate the optimality conditions join
    it.
    """
    tensors = zip(*(chunks(tensor) for tensor in (cov, penalty, *solution)), strict=True)
    parts = [_polish_part(part[0], part[1], Solution(*part[2:])) for part in tensors]
    return parts[0] if len(parts) == 1 else Solution(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))


def _polish_part(cov: Tensor, penalty: Tensor, solution: Solution, *, max_iter: int = 15) -> Solution:
    theta, best = solution.precision.clone(), solution
    objective = _objective(cov, penalty, theta)
    for _step in range(max_iter):
        inverse, _ = inverse_if_positive(theta, cov)
        best = _keep_better(cov, penalty, theta, inverse, best)
        excess = inverse - cov
        sign = torch.where(theta != 0, theta.sign(), torch.where(excess.abs() > penalty, excess.sign(), 0.0))
        support = sign != 0
        gradient = torch.where(support, cov + penalty * sign - inverse, 0.0)
        step = solve_on_support(-gradient, theta, inverse, support, tol=1e-6, max_iter=MAX_STEPS)
        decrement = -inner(gradient, step)[:, 0, 0]
        theta, objective, moved = _line_search(cov, penalty, theta, step, sign, objective)
        # Below this decrement the step just taken, accurate to six digits, has reached rounding
        # accuracy.
        if not bool((moved & (decrement > 1e-16 * cov.shape[-1])).any()):
            break
    inverse, _ = inverse_if_positive(theta, cov)
    return _keep_better(cov, penalty, theta, inverse, best)


def _keep_better(cov: Tensor, penalty: Tensor, theta: Tensor, inverse: Tensor, best: Solution) -> Solution:
    dual = cov + torch.clamp(inverse - cov, -penalty, penalty)
    gap = duality_gap(cov, penalty, theta, dual)
    # Gaps at rounding level do not rank iterates; the later one is closer.
    better = (gap <= best.gap) | (gap <= 1e-13 * cov.shape[-1])
    pick = better[:, None, None]
    return Solution(
        torch.where(pick, theta, best.precision),
        torch.where(pick, dual, best.dual),
        torch.where(better, gap, best.gap),
        best.n_iter,
        best.rho,
    )


def _line_search(
    cov: Tensor, penalty: Tensor, theta: Tensor, step: Tensor, sign: Tensor, objective: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Halve each step until the objective does not grow beyond rounding; otherwise keep Θ."""
    length = torch.ones_like(objective)
    settled = torch.zeros_like(objective, dtype=torch.bool)
    allowance = 1e-13 * (objective.abs() + cov.shape[-1])
    for _ in range(12):
        trial = theta + length[:, None, None] * step
        trial = torch.where(trial * sign > 0, trial, 0.0)
        value = _objective(cov, penalty, trial)
        accept = ~settled & (value <= objective + allowance)
        theta = torch.where(accept[:, None, None], trial, theta)
        objective = torch.where(accept, value, objective)
        settled = settled | accept
        if bool(settled.all()):
            break
        length = 0.5 * length
    return theta, objective, settled


def _objective(cov: Tensor, penalty: Tensor, theta: Tensor) -> Tensor:
    return (cov * theta + penalty * theta.abs()).sum((-2, -1), dtype=torch.float64) - log_determinant(theta)
