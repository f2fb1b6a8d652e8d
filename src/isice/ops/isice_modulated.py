"""⑤ iSICE with step size and sparsity predicted from ∇₁ in every step (paper: iSICE+MLP*)."""

from collections.abc import Callable

import torch
from torch import Tensor

from .._checks import check_symmetric
from ._linalg import add_diagonal, normalize_trace
from ._numerics import full_precision
from .isice import OUTPUT_POWER, Normalize, decay, isice_options, update
from .newton_schulz import newton_schulz_inverse


@full_precision
def isice_modulated(
    cov: Tensor,
    modulate: Callable[[Tensor], tuple[Tensor, Tensor]],
    *,
    sparsity: float = 0.01,
    step_size: float = 1.0,
    n_iter: int = 5,
    n_inverse_iter: int = 7,
    normalize: Normalize = "sqrt_trace",
    alpha: float = 1e-9,
) -> Tensor:
    """Compute :func:`isice` with η and λ multiplied in each step by functions of ∇₁.

    Autograd differentiates ``modulate`` and the steps; the inverses have an analytic backward.

    Args:
        cov: Covariance matrices (B, D, D).
        modulate: Maps ∇₁ (B, D, D) to factors of η and of λ, each of shape (B,).
        sparsity, step_size, n_iter, n_inverse_iter, normalize, alpha: As in :func:`isice`.

    Example:
        >>> ones = lambda nabla: (nabla.new_ones(len(nabla)),) * 2
        >>> isice_modulated(torch.eye(3)[None], ones).shape
        torch.Size([1, 3, 3])
    """
    check_symmetric("isice_modulated", cov)
    isice_options("isice_modulated", n_iter, n_inverse_iter, normalize, "inverse", alpha)
    sigma = normalize_trace(cov).matrix
    s = newton_schulz_inverse(add_diagonal(sigma, alpha), n_iter=n_inverse_iter)
    for beta in decay(n_iter):
        nabla = newton_schulz_inverse(add_diagonal(s, alpha), n_iter=n_inverse_iter)
        step_factor, sparsity_factor = (factor[..., None, None] for factor in modulate(nabla))
        plus, minus = update(s, nabla - sigma, step_size * beta * step_factor, sparsity * sparsity_factor)
        s = plus - minus
    return s / normalize_trace(s).scale ** OUTPUT_POWER[normalize]


def modulation(logit: Tensor, tau: float = 0.01) -> Tensor:
    """Return the modulator κ = τ + 2·sigmoid(logit) between τ and 2 + τ.

    Example:
        >>> modulation(torch.zeros(1), tau=0.0)
        tensor([1.])
    """
    return tau + 2 * torch.sigmoid(logit)


def modulation_penalty(*factors: Tensor, gamma: float = 1e-4) -> Tensor:
    """Return the loss term γ·(κ − 1)², averaged over the images and summed over the modulators.

    Example:
        >>> modulation_penalty(torch.ones(4))
        tensor(0.)
    """
    return gamma * torch.stack([(factor - 1).square().mean() for factor in factors]).sum()
