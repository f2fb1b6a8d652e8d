"""The published algorithms, differentiated by autograd: a baseline for the layers.

Written from Alg. 1 and 2 of the paper: the centring matrix, Y and Z of every Newton–Schulz step,
and all N steps of iSICE, although the last has step size zero. Autograd saves every intermediate.
"""

import torch
from torch import Tensor

ALPHA, SPARSITY, STEP_SIZE = 1e-9, 0.01, 1.0


def covariance(x: Tensor) -> Tensor:
    """Σ = X Ī Xᵀ with Ī = (I − 11ᵀ/n)/n, for features (B, C, N)."""
    n = x.shape[-1]
    centring = (torch.eye(n, dtype=x.dtype, device=x.device) - 1 / n) / n
    return x @ centring @ x.mT


def newton_schulz(a: Tensor, n_iter: int) -> tuple[Tensor, Tensor, Tensor]:
    """Y, Z and the trace after ``n_iter`` steps (Alg. 1)."""
    eye = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    total = _trace(a)
    y, z = a / total, eye.expand_as(a)
    for _ in range(n_iter):
        p = 0.5 * (3 * eye - z.bmm(y))
        y, z = y.bmm(p), p.bmm(z)
    return y, z, total


def inverse(a: Tensor, n_iter: int = 7) -> Tensor:
    """nsInv(A) = ZZᵀ/tr A."""
    _, z, total = newton_schulz(a, n_iter)
    return z.bmm(z.mT) / total


def isqrt_cov(x: Tensor) -> Tensor:
    """√(tr Σ)·Y after five steps, upper triangle."""
    y, _, total = newton_schulz(covariance(x), 5)
    return _upper(total.sqrt() * y)


def precision(x: Tensor) -> Tensor:
    """nsInv(Σ), upper triangle."""
    return _upper(inverse(covariance(x)))


def isice(x: Tensor, n_iter: int = 5) -> Tensor:
    """Alg. 2, S_N/√tr(S_N), upper triangle."""
    cov = covariance(x)
    shift = ALPHA * torch.eye(cov.shape[-1], dtype=cov.dtype, device=cov.device)
    sigma = cov / _trace(cov)
    s = inverse(sigma + shift)
    for i in range(n_iter):
        gradient = inverse(s + shift) - sigma
        rate = STEP_SIZE * (1 - i / max(1, n_iter - 1))
        plus = torch.relu(torch.relu(s) - rate * (SPARSITY - gradient))
        minus = torch.relu(torch.relu(-s) - rate * (SPARSITY + gradient))
        s = plus - minus
        s = 0.5 * (s + s.mT)
    return _upper(s / _trace(s).sqrt())


HEADS = {"isqrt_cov": isqrt_cov, "precision": precision, "isice": isice}


def _trace(matrix: Tensor) -> Tensor:
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None]


def _upper(matrix: Tensor) -> Tensor:
    rows, columns = torch.triu_indices(matrix.shape[-1], matrix.shape[-1], device=matrix.device)
    return matrix[:, rows, columns]
