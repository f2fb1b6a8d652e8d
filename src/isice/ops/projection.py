"""⑤ Projections of bilinear features XXᵀ: rank-one, low-rank, Kronecker and two-sided."""

from typing import cast

from torch import Tensor
from torch.nn.functional import pad

from .._checks import check_feature_set, check_int, check_square
from ._numerics import full_precision, matmul_no_autocast
from .signed_sqrt import l2_normalize


@full_precision
def rank_one_update(x: Tensor, start: Tensor, *, n_iter: int = 2, strength: float = 0.5) -> Tensor:
    """Damp the leading direction v of XXᵀ: X̄ = (I − ε·vvᵀ/‖v‖²)X.

    The power method estimates v. Only products with X and Xᵀ are needed, so the cost is linear in
    C·N. The power method runs on features of unit Frobenius norm: v does not depend on the scale,
    and a zero map gives v = 0 instead of 0/0.

    Args:
        x: Features X (B, C, N).
        start: First vector of the power method (C,).
        n_iter: Steps v ← XXᵀv.
        strength: ε, the fraction of the leading component to remove.

    Returns:
        Features X̄ (B, C, N).

    Example:
        >>> rank_one_update(torch.tensor([[[3.0, 0.0], [0.0, 0.1]]]), torch.tensor([1.0, 0.0]))
        tensor([[[1.5000, 0.0000],
                 [0.0000, 0.1000]]])
    """
    check_feature_set("rank_one_update", x)
    check_int("rank_one_update", "n_iter", n_iter, minimum=1)
    unit = l2_normalize(x.flatten(1)).unflatten(1, x.shape[1:])
    v = l2_normalize(start.to(x.dtype)).expand(x.shape[:-1]).unsqueeze(-1)  # (B, C, 1)
    for _ in range(n_iter):
        v = l2_normalize(matmul_no_autocast(unit, matmul_no_autocast(unit.mT, v)), dim=-2)
    return x - strength * matmul_no_autocast(v, matmul_no_autocast(v.mT, x))


@full_precision
def low_rank_scores(x: Tensor, factors: Tensor) -> Tensor:
    """Compute scores ‖U⁺ᵀX‖² − ‖U⁻ᵀX‖² = ⟨U⁺U⁺ᵀ − U⁻U⁻ᵀ, XXᵀ⟩ per class without forming XXᵀ.

    Args:
        x: Features (B, C, N).
        factors: (K, R, C) for K classes, R even; the first half of the rows is U⁺, the second U⁻.

    Returns:
        Scores (B, K).

    Example:
        >>> low_rank_scores(torch.tensor([[[1.0], [2.0]]]), torch.eye(2)[None])
        tensor([[-3.]])
    """
    check_feature_set("low_rank_scores", x)
    if factors.ndim != 3 or factors.shape[1] % 2 or factors.shape[2] != x.shape[1]:
        raise ValueError(
            f"low_rank_scores: expected factors (K, R, {x.shape[1]}) with R even, got {tuple(factors.shape)}."
        )
    energy = matmul_no_autocast(factors.to(x.dtype).flatten(0, 1), x).square().sum(dim=-1)
    positive, negative = energy.unflatten(-1, (factors.shape[0], 2, -1)).sum(dim=-1).unbind(-1)
    return cast(Tensor, positive - negative)


@full_precision
def kronecker_projection(x: Tensor, left: Tensor, right: Tensor, blocks: int) -> Tensor:
    """Compute (A ⊗ B)·vec(XXᵀ/N) as vec((BX)(AX)ᵀ/N), without forming XXᵀ.

    A = I_r ⊗ A′ and B = B′ ⊗ I_r with r = ``blocks``; vec stacks columns. Channels are zero-padded.

    Args:
        x: Features X (B, C, N).
        left: A′ (a/r, ⌈C/r⌉).
        right: B′ (b/r, ⌈C/r⌉).
        blocks: r, the size of the identity in both Kronecker products.

    Returns:
        Vectors (B, a·b).

    Example:
        >>> x, left, right = torch.rand(2, 8, 49), torch.rand(3, 2), torch.rand(1, 2)
        >>> kronecker_projection(x, left, right, blocks=4).shape
        torch.Size([2, 48])
    """
    check_feature_set("kronecker_projection", x)
    check_int("kronecker_projection", "blocks", blocks, minimum=1)
    width = -(-x.shape[1] // blocks)
    if left.shape[-1] != width or right.shape[-1] != width:
        raise ValueError(
            f"kronecker_projection: expected factors with ⌈{x.shape[1]}/{blocks}⌉ = {width} columns, "
            f"got {tuple(left.shape)} and {tuple(right.shape)}."
        )
    padded = pad(x, (0, 0, 0, width * blocks - x.shape[1]))
    a_x = matmul_no_autocast(left.to(x.dtype), padded.unflatten(1, (blocks, width)).flatten(0, 1))  # (B·r, a/r, N)
    b_x = matmul_no_autocast(right.to(x.dtype), padded.unflatten(1, (width, blocks)).flatten(2))  # (B, b/r, r·N)
    a_x = a_x.reshape(x.shape[0], left.shape[0] * blocks, x.shape[-1])
    b_x = b_x.reshape(x.shape[0], right.shape[0] * blocks, x.shape[-1])
    return (matmul_no_autocast(a_x, b_x.mT) / x.shape[-1]).flatten(1)


@full_precision
def two_sided_projection(matrix: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Compute W₁ᵀAW₂, flattened row by row: (B, D, D) → (B, d₁·d₂).

    Args:
        matrix: A (B, D, D) or (D, D).
        left: W₁ᵀ (d₁, D).
        right: W₂ᵀ (d₂, D).

    Example:
        >>> left, right = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0]])
        >>> two_sided_projection(torch.eye(2), left, right)
        tensor([11.,  2.])
    """
    check_square("two_sided_projection", matrix)
    if left.shape[-1] != matrix.shape[-1] or right.shape[-1] != matrix.shape[-1]:
        raise ValueError(
            f"two_sided_projection: expected projections with {matrix.shape[-1]} columns, "
            f"got {tuple(left.shape)} and {tuple(right.shape)}."
        )
    return matmul_no_autocast(matmul_no_autocast(left.to(matrix.dtype), matrix), right.to(matrix.dtype).mT).flatten(-2)
