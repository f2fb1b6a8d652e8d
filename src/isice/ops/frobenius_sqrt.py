"""⑤ Matrix square root by Newton–Schulz after division by the Frobenius norm (improved B-CNN)."""

from typing import Any, cast

import torch
from torch import Tensor

from .._checks import check_int, check_square
from ._linalg import NO_VARIANCE, out_of_place
from ._numerics import LARGE, InputsSaved, full_precision
from .newton_schulz import factor_product, factor_product_derivative


def frobenius_sqrt_reference(matrix: Tensor, n_iter: int) -> Tensor:
    """Run the coupled iteration as published, by autograd, on nonzero matrices; the oracle."""
    norm: Tensor = torch.linalg.matrix_norm(matrix, keepdim=True)
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    y, z = matrix / norm, eye.expand_as(matrix)
    for _ in range(n_iter):
        p = 0.5 * (3 * eye - z @ y)
        y, z = y @ p, p @ z
    return y * norm.sqrt()


class _NormalizedSqrt(InputsSaved):
    """A∏P for symmetric A of norm at most one: a polynomial with a self-adjoint derivative."""

    @staticmethod
    def forward(matrix: Tensor, n_iter: int) -> Tensor:
        return out_of_place(factor_product(matrix, n_iter, "sqrt"))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (matrix,), (n_iter,), (grad,) = ctx.saved_tensors, ctx.options, grads
        with torch.autocast(matrix.device.type, enabled=False):
            return factor_product_derivative(matrix, 0.5 * (grad + grad.mT), n_iter, "sqrt"), None


@full_precision
def frobenius_sqrt(matrix: Tensor, *, n_iter: int = 5) -> Tensor:
    """Compute the square root √‖A‖_F · Y, where Y is the Newton–Schulz iterate of A/‖A‖_F.

    It converges to the same root as :func:`~isice.ops.newton_schulz.newton_schulz_sqrt`, and
    faster: ‖A‖_F ≤ tr A, so the normalised eigenvalues are larger.

    Args:
        matrix: Symmetric positive semi-definite matrices (..., D, D). Zero matrices give zero.
        n_iter: Newton–Schulz steps.

    Example:
        >>> frobenius_sqrt(4 * torch.eye(2), n_iter=12).diagonal().round(decimals=4)
        tensor([2., 2.])
    """
    check_square("frobenius_sqrt", matrix)
    check_int("frobenius_sqrt", "n_iter", n_iter, minimum=1)
    flat = matrix.reshape(-1, *matrix.shape[-2:])
    # The squares of large entries would overflow.
    largest = flat.detach().abs().amax(dim=(-2, -1), keepdim=True)
    scale = torch.where(largest > LARGE, largest, torch.ones_like(largest))
    scaled = flat / scale
    square = scaled.square().sum(dim=(-2, -1), keepdim=True)
    # Replace a zero norm before the square root, whose slope at zero is infinite.
    norm = torch.where(square > NO_VARIANCE**2, square, torch.ones_like(square)).sqrt()
    root = cast(Tensor, _NormalizedSqrt.apply(scaled / norm, n_iter))
    return (root * (norm.sqrt() * scale.sqrt())).reshape(matrix.shape)
