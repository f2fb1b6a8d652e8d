"""⑤ Codebook statistics: descriptors softly assigned to K words and aggregated (NetVLAD, NetFV)."""

import math

import torch
from torch import Tensor

from .._checks import check_floating, check_int
from ._numerics import full_precision, matmul_no_autocast


def _check_codebook(who: str, x: Tensor, weight: Tensor, *words: Tensor) -> None:
    if (
        x.ndim not in (2, 3)
        or weight.ndim != 2
        or x.shape[-2] != weight.shape[-1]
        or any(w.shape != weight.shape for w in words)
    ):
        shapes = ", ".join(str(tuple(t.shape)) for t in (x, weight, *words))
        raise ValueError(f"{who}: expected descriptors (B, C, N) and words (K, C), got {shapes}.")


@full_precision
def soft_assignment(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Assign each descriptor softly to the words, softmax_k(w_kᵀx + b_k).

    Args:
        x: Descriptors (B, C, N).
        weight: One direction per word (K, C).
        bias: One offset per word (K,).

    Returns:
        Weights (B, K, N); each column sums to one.

    Example:
        >>> soft_assignment(torch.rand(2, 8, 49), torch.rand(4, 8)).shape
        torch.Size([2, 4, 49])
    """
    _check_codebook("soft_assignment", x, weight)
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"soft_assignment: expected one bias per word ({len(weight)},), got {tuple(bias.shape)}.")
    scores = matmul_no_autocast(weight, x)
    return torch.softmax(scores if bias is None else scores + bias[:, None], dim=-2)


@full_precision
def vlad(x: Tensor, centres: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Sum the residuals to each centre, V_k = Σ_t a_k(x_t)(x_t − c_k).

    The weights a are the :func:`soft_assignment`. Two matrix products replace the (K, C, N) tensor
    of residuals.

    Args:
        x: Descriptors (B, C, N).
        centres: Centres (K, C).
        weight: Assignment directions (K, C).
        bias: Assignment offsets (K,).

    Returns:
        Residual sums (B, K, C).

    Example:
        >>> vlad(torch.rand(2, 8, 49), torch.rand(4, 8), torch.rand(4, 8)).shape
        torch.Size([2, 4, 8])
    """
    _check_codebook("vlad", x, weight, centres)
    share = soft_assignment(x, weight, bias)
    return matmul_no_autocast(share, x.mT) - share.sum(dim=-1, keepdim=True) * centres


@full_precision
def fisher_vector(x: Tensor, means: Tensor, log_scales: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute Fisher vectors of a diagonal Gaussian mixture, without the prior factors.

    With u = (x_t − μ_k)/σ_k and γ = :func:`soft_assignment`, the first order is (1/N) Σ_t γ_k u and
    the second (1/N) Σ_t γ_k (u² − 1)/√2.

    Args:
        x: Descriptors (B, C, N).
        means: Component means μ (K, C).
        log_scales: Logarithms of the standard deviations, log σ (K, C).
        weight: Assignment directions (K, C).
        bias: Assignment offsets (K,).

    Returns:
        First-order then second-order statistics (B, 2, K, C).

    Example:
        >>> means, log_scales, weight = torch.rand(3, 4, 8)
        >>> fisher_vector(torch.rand(2, 8, 49), means, log_scales, weight).shape
        torch.Size([2, 2, 4, 8])
    """
    _check_codebook("fisher_vector", x, weight, means, log_scales)
    share = soft_assignment(x, weight, bias) / x.shape[-1]
    # Σγ(x−μ)² is expanded around the mean of all components: a common offset cancels no digits.
    origin = means.mean(dim=0)
    x, means = x - origin[:, None], means - origin
    mass = share.sum(dim=-1, keepdim=True)
    first, second = matmul_no_autocast(share, x.mT), matmul_no_autocast(share, (x * x).mT)
    inverse_scales = torch.exp(-log_scales)
    order1 = (first - mass * means) * inverse_scales
    order2 = ((second - 2 * means * first + mass * means**2) * inverse_scales**2 - mass) / math.sqrt(2)
    return torch.stack((order1, order2), dim=-3)


def assignment_sharpness(x: Tensor, directions: Tensor) -> float:
    """Return NetVLAD's α = −log(0.01) / mean(s₁ − s₂) of the two best scores of each descriptor.

    With this α the best word outweighs the second about 100 to 1.

    Args:
        x: Descriptors of unit length (M, C).
        directions: Words of unit length (K, C).

    Example:
        >>> round(assignment_sharpness(torch.eye(2), torch.eye(2)), 4)
        4.6052
    """
    check_floating("assignment_sharpness", x)
    if x.ndim != 2 or directions.ndim != 2 or x.shape[1] != directions.shape[1]:
        raise ValueError(
            f"assignment_sharpness: expected descriptors (M, C) and words (K, C), "
            f"got {tuple(x.shape)} and {tuple(directions.shape)}."
        )
    if len(directions) == 1:
        return 1.0
    best = (x @ directions.mT).topk(2, dim=1).values
    gap = (best[:, 0] - best[:, 1]).mean().item()
    return -math.log(0.01) / max(gap, 1e-6)


def kmeans(points: Tensor, n_clusters: int, *, n_iter: int = 20, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Cluster points by Lloyd's k-means from random points; an empty cluster keeps its centre.

    Args:
        points: Points (M, C) with M ≥ ``n_clusters``.
        n_clusters: Number of centres K.
        n_iter: Number of updates.
        seed: Seed of the initial points.

    Returns:
        Centres (K, C) and the index of each point's nearest centre (M,).

    Example:
        >>> centres, nearest = kmeans(torch.tensor([[0.0], [1.0], [9.0], [10.0]]), 2)
        >>> sorted(centres.flatten().tolist())
        [0.5, 9.5]
    """
    check_floating("kmeans", points)
    check_int("kmeans", "n_clusters", n_clusters, minimum=1)
    check_int("kmeans", "n_iter", n_iter, minimum=0)
    if points.ndim != 2 or len(points) < n_clusters:
        raise ValueError(
            f"kmeans: expected at least {n_clusters} points (M, C), got {tuple(points.shape)}; pass more, "
            "such as those of more images."
        )
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(seed))
    centres = points[order[:n_clusters].to(points.device)].clone()
    for _ in range(n_iter):
        nearest = torch.cdist(points, centres).argmin(dim=1)
        counts = torch.bincount(nearest, minlength=n_clusters).to(points.dtype)[:, None]
        sums = torch.zeros_like(centres).index_add_(0, nearest, points)
        centres = torch.where(counts > 0, sums / counts.clamp_min(1), centres)
    return centres, torch.cdist(points, centres).argmin(dim=1)


def diagonal_mixture(points: Tensor, centres: Tensor, nearest: Tensor) -> tuple[Tensor, Tensor]:
    """Estimate the scales of a diagonal mixture from a hard clustering.

    Each variance is shrunk to the pooled variance with the weight of one point.

    Args:
        points: Points (M, C).
        centres: Centres (K, C).
        nearest: Index of each point's centre (M,).

    Returns:
        Standard deviations (K, C) and the pooled variance, a scalar.

    Example:
        >>> points = torch.tensor([[-1.0], [1.0], [4.0], [6.0]])
        >>> centres = torch.tensor([[0.0], [5.0]])
        >>> scales, variance = diagonal_mixture(points, centres, torch.tensor([0, 0, 1, 1]))
        >>> scales.flatten().tolist(), variance.item()
        ([1.0, 1.0], 1.0)
    """
    check_floating("diagonal_mixture", points)
    if points.ndim != 2 or points.shape[1:] != centres.shape[1:]:
        raise ValueError(
            f"diagonal_mixture: expected points (M, C) and centres (K, C), "
            f"got {tuple(points.shape)} and {tuple(centres.shape)}."
        )
    squares = (points - centres[nearest]).square()
    variance = squares.mean().clamp_min(1e-12)
    counts = torch.bincount(nearest, minlength=len(centres)).to(points.dtype)[:, None]
    sums = torch.zeros_like(centres).index_add_(0, nearest, squares)
    return ((sums + variance) / (counts + 1)).sqrt(), variance
