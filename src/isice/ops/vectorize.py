"""⑥ Symmetric matrix ⇄ upper triangle in row-major order, which saved weights depend on."""

import math

import torch
from torch import Tensor

from .._checks import check_floating, check_square


def vectorize_reference(matrix: Tensor) -> Tensor:
    """Return the upper triangle by plain indexing; the test oracle of :func:`vectorize`."""
    rows, columns = torch.triu_indices(matrix.shape[-1], matrix.shape[-1], device=matrix.device)
    return matrix[..., rows, columns]


def vectorize(matrix: Tensor) -> Tensor:
    """Return the upper triangle with diagonal: (..., D, D) → (..., D(D+1)/2).

    The order is that of ``numpy.triu_indices``.

    Example:
        >>> vectorize(torch.tensor([[1.0, 2.0], [2.0, 3.0]]))
        tensor([1., 2., 3.])
    """
    check_square("vectorize", matrix)
    size = matrix.shape[-1]
    rows, columns = torch.triu_indices(size, size, device=matrix.device)
    return matrix.flatten(-2).index_select(-1, rows * size + columns)


def unvectorize(vector: Tensor) -> Tensor:
    """Return the symmetric matrix with upper triangle ``vector``: (..., D(D+1)/2) → (..., D, D).

    Example:
        >>> unvectorize(torch.tensor([1.0, 2.0, 3.0]))
        tensor([[1., 2.],
                [2., 3.]])
    """
    check_floating("unvectorize", vector)
    length = vector.shape[-1] if vector.ndim else 0
    size = max((math.isqrt(8 * length + 1) - 1) // 2, 1)
    if size * (size + 1) // 2 != length:
        raise ValueError(
            f"unvectorize: expected a last dimension D(D+1)/2, such as {size * (size + 1) // 2} or "
            f"{(size + 1) * (size + 2) // 2}, got {tuple(vector.shape)}; pass what vectorize() returned."
        )
    rows, columns = torch.triu_indices(size, size, device=vector.device)
    position = vector.new_zeros((size, size), dtype=torch.long)
    position[rows, columns] = torch.arange(length, device=vector.device)
    position[columns, rows] = position[rows, columns]
    return vector.index_select(-1, position.flatten()).reshape(*vector.shape[:-1], size, size)
