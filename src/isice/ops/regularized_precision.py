"""⑤ Covariance → a regularised inverse, which also exists for singular matrices."""

from torch import Tensor

from .._checks import check_choice, check_int, check_number, check_square
from ._linalg import normalize_trace
from ._numerics import full_precision
from .newton_schulz import newton_schulz_inverse
from .ridge import ridge_inverse


@full_precision
def regularized_precision(cov: Tensor, *, method: str = "newton_schulz", n_iter: int = 7, ridge: float = 1.0) -> Tensor:
    """Compute a regularised inverse of Σ' = Σ/tr Σ, which may be singular.

    Args:
        cov: Covariance matrices (..., D, D).
        method: ``"newton_schulz"`` stops the iteration after ``n_iter`` steps, which bounds the
            eigenvalues of the inverse; ``"ridge"`` is the exact inverse of D·Σ' + ridge·I, where
            D·Σ' has mean eigenvalue one.
        n_iter: Steps of ``"newton_schulz"``.
        ridge: Positive weight of I in ``"ridge"``.

    Example:
        >>> regularized_precision(torch.eye(2), method="ridge", ridge=1.0).diagonal()
        tensor([0.5000, 0.5000])
    """
    check_square("regularized_precision", cov)
    check_choice("regularized_precision", "method", method, ("newton_schulz", "ridge"))
    check_int("regularized_precision", "n_iter", n_iter, minimum=1)
    check_number("regularized_precision", "ridge", ridge, strict=True)
    if method == "ridge":
        return ridge_inverse(cov, ridge)
    sigma = normalize_trace(cov.reshape(-1, *cov.shape[-2:])).matrix
    return newton_schulz_inverse(sigma, n_iter=n_iter).reshape(cov.shape)
