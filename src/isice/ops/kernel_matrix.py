"""⑤ Features → Gaussian kernel matrix over the channels (DeepKSPD)."""

import torch
from torch import Tensor

from .._checks import check_number
from ._numerics import full_precision, matmul_no_autocast
from .covariance import flat_features


@full_precision
def squared_distances(x: Tensor) -> Tensor:
    """Compute mean squared differences between channels, ‖f_i − f_j‖²/N over the N positions.

    Args:
        x: Feature maps (B, C, H, W), or feature sets (B, C, N) or (C, N).

    Returns:
        Symmetric non-negative matrices (..., C, C) with a zero diagonal.

    Example:
        >>> squared_distances(torch.tensor([[1.0, 1.0], [1.0, 3.0]]))
        tensor([[0., 2.],
                [2., 0.]])
    """
    x = flat_features("squared_distances", x)
    # Distances do not depend on the mean channel; without it ‖f‖² − 2f·g + ‖g‖² cancels less.
    x = x - x.mean(dim=-2, keepdim=True)
    gram = matmul_no_autocast(x, x.mT) / x.shape[-1]
    norms = gram.diagonal(dim1=-2, dim2=-1)
    off_diagonal = 1 - torch.eye(gram.shape[-1], dtype=x.dtype, device=x.device)
    return (norms[..., :, None] + norms[..., None, :] - 2 * gram).clamp_min(0) * off_diagonal


@full_precision
def gaussian_kernel_matrix(x: Tensor, theta: Tensor | float) -> Tensor:
    """Compute K_ij = exp(−θ‖f_i − f_j‖²/N), where f_i is channel i at all N positions.

    Args:
        x: Feature maps (B, C, H, W), or feature sets (B, C, N) or (C, N).
        theta: Inverse width θ > 0.

    Returns:
        Symmetric positive semi-definite matrices (..., C, C) with unit diagonal.

    Example:
        >>> gaussian_kernel_matrix(torch.rand(2, 8, 7, 7), 1.0).shape
        torch.Size([2, 8, 8])
    """
    if not isinstance(theta, Tensor):
        check_number("gaussian_kernel_matrix", "theta", theta, strict=True)
    return torch.exp(-theta * squared_distances(x))
