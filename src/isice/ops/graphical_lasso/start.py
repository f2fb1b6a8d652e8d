"""Starting points of ADMM: a given precision matrix, or a guess that costs one inverse."""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from .._linalg import add_diagonal
from .certificate import cholesky, inverse_and_objective
from .lyapunov import frobenius_norm
from .theta_step import half_theta_by_newton_schulz

CLOSE_ROOT = 0.02  # ‖ZW − I‖_F/√D, beyond ρ, up to which the root is about W⁻¹
FAR_ROOT = 0.4  # the same from which on W is indefinite or nearly so, as on singular features
RIDGE, MAX_RIDGE = 0.6, 1.5  # r as multiples of λ√D and of √λ
LEAST_SPARSITY = 1e-6  # λ of the roots: they divide by it, and share polynomials with the batch


class Start(NamedTuple):
    """Primal Z (B, D, D), dual W (B, D, D) and ADMM's parameter ρ (B, 1, 1)."""

    precision: Tensor
    dual: Tensor
    rho: Tensor


def cold_start(cov: Tensor, penalty: Tensor, *, inverse: Literal["cholesky", "products"]) -> Start:
    """Return the dual W with entries as close to zero as allowed, and an approximate inverse.

    With ``"cholesky"`` the primal is W⁻¹ or (S + rI)⁻¹, whichever has the lower objective. W⁻¹ is
    the solution on rank one. Otherwise r = 0.6·λ√D, about the smallest eigenvalue that the penalty
    gives the solution, and W = S + Λ·sign of the primal, as at a solution. With ``"products"`` both
    inverses are approximated by roots of Z⁻¹ − ρZ = B, and the first is used where it is accurate
    and where W is far from positive definite, which takes the fewest iterations on real features.
    """
    size = cov.shape[-1]
    least = LEAST_SPARSITY if inverse == "products" else 0.0
    sparsity = (penalty.sum((-2, -1), keepdim=True) / max(1, size * (size - 1))).clamp_(least, 1.0)
    dual = cov - torch.clamp(cov, -penalty, penalty)
    # Random signs on a D×D matrix change its eigenvalues in proportion to √D.
    ridge = torch.minimum(RIDGE * math.sqrt(size) * sparsity, MAX_RIDGE * sparsity.sqrt())
    if inverse == "cholesky":
        precision, dual = _inverse_or_ridge(cov, penalty, dual, ridge)
    else:
        precision, dual = _root_or_ridge(cov, penalty, dual, ridge, sparsity)
    return Start(precision, dual, _balanced_rho(cov, precision, dual))


def _inverse_or_ridge(cov: Tensor, penalty: Tensor, dual: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor]:
    inverse, inverse_objective = inverse_and_objective(cov, penalty, dual)
    precision, objective = inverse_and_objective(cov, penalty, add_diagonal(cov, ridge))
    better = (inverse_objective < objective)[:, None, None]
    if bool(better.all()):
        return inverse, dual
    signed = torch.sign(precision).mul_(penalty).add_(cov)
    return torch.where(better, inverse, precision), torch.where(better, dual, signed)


def _root_or_ridge(
    cov: Tensor, penalty: Tensor, dual: Tensor, ridge: Tensor, sparsity: Tensor
) -> tuple[Tensor, Tensor]:
    rho = 0.25 * sparsity
    half = half_theta_by_newton_schulz(dual, rho)  # finite where W is indefinite
    root = half + half.mT
    error = torch.bmm(root, dual, out=half)
    error.diagonal(dim1=-2, dim2=-1).sub_(1.0)
    distance = frobenius_norm(error) / math.sqrt(cov.shape[-1])
    better = (distance < CLOSE_ROOT + rho) | (distance > FAR_ROOT)  # I − ZW is ρZ²
    if bool(better.all()):
        return root, dual
    # Here Z⁻¹ = S + 3r/4·I + r²Z/4, which is rI where S is zero.
    half = half_theta_by_newton_schulz(add_diagonal(cov, 0.75 * ridge), 0.25 * ridge.square())
    precision = half + half.mT
    signed = torch.sign(precision).mul_(penalty).add_(cov)
    return torch.where(better, root, precision), torch.where(better, dual, signed)


def warm_start(cov: Tensor, penalty: Tensor, precision: Tensor, dual: Tensor) -> Start:
    """Return a precision, or I where it is indefinite, and a dual clipped to its bounds."""
    positive = cholesky(precision)[1] == 0
    if not bool(positive.all()):
        identity = torch.eye(cov.shape[-1], dtype=cov.dtype, device=cov.device)
        precision = torch.where(positive[:, None, None], precision, identity)
    dual = torch.sub(dual, cov).clamp_(-penalty, penalty).add_(cov)
    return Start(precision, dual, _balanced_rho(cov, precision, dual))


def _balanced_rho(cov: Tensor, precision: Tensor, dual: Tensor) -> Tensor:
    """Return the ρ that balances the relative residuals of ADMM near the solution."""
    rho = torch.sqrt(frobenius_norm(dual - cov) * frobenius_norm(cov)) / frobenius_norm(precision)
    return torch.where(rho > 0, rho, 1.0)
