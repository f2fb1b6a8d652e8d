"""⑤ Covariance → a regularised inverse that also exists for singular matrices."""

import torch
from torch import Tensor

from .._checks import check_choice, check_int, check_number, check_square
from ._linalg import add_diagonal_, normalize_trace
from ._numerics import full_precision
from .newton_schulz import newton_schulz_inverse


@full_precision
def regularized_precision(cov: Tensor, *, method: str = "newton_schulz", n_iter: int = 7, ridge: float = 1.0) -> Tensor:
    """An inverse of Σ' = Σ/tr Σ that also exists for a singular Σ.

    Args:
        cov: Covariance matrices (..., D, D).
        method: ``"newton_schulz"`` stops the iteration after ``n_iter`` steps, which caps the inverse's eigenvalues;
            ``"ridge"`` is the exact inverse of D·Σ' + ridge·I (mean eigenvalue of D·Σ': one).
        n_iter: Steps of ``"newton_schulz"``.
        ridge: Diagonal weight of ``"ridge"``, positive.

    Example:
        >>> regularized_precision(torch.eye(2), method="ridge", ridge=1.0)
        tensor([[0.5000, 0.0000],
                [0.0000, 0.5000]])
    """
    check_square("regularized_precision", cov)
    check_choice("regularized_precision", "method", method, ("newton_schulz", "ridge"))
    check_int("regularized_precision", "n_iter", n_iter, minimum=1)
    check_number("regularized_precision", "ridge", ridge, strict=True)
    flat = cov.reshape(-1, *cov.shape[-2:])
    sigma = normalize_trace(flat).matrix
    if method == "newton_schulz":
        return newton_schulz_inverse(sigma, n_iter).reshape(cov.shape)
    return torch.linalg.inv(add_diagonal_(sigma * cov.shape[-1], ridge)).reshape(cov.shape)
