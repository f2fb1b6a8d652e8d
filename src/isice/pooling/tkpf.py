"""TKPF: compact bilinear pooling through a projection that is a Kronecker product on two levels."""

import torch
from torch import Tensor, nn

from .._checks import check_choice, check_int
from ..ops.projection import kronecker_projection
from ..ops.signed_sqrt import l2_normalize, signed_sqrt
from ..ops.sketch import random_normal
from . import Pooling, register_pooling


@register_pooling
class TKPF(Pooling):
    """TKPF: structured projections ((I_r ⊗ A′) ⊗ (B′ ⊗ I_r))·vec(XXᵀ/n), signed root, ℓ2 norm.

    Several pairs (A′, B′) are summed or concatenated. The output has n_left·n_right features, times
    n_pairs when concatenated. Neither XXᵀ nor the large projection is formed.

    Args:
        n_left: Rows of I_r ⊗ A′, a multiple of ``blocks``.
        n_right: Rows of B′ ⊗ I_r, a multiple of ``blocks``.
        blocks: r, the size of the identities; channels are zero-padded to a multiple of it.
        n_pairs: Number of pairs (A′, B′).
        combine: ``"sum"`` or ``"concat"``.
        seed: Seed of the initial A′ and B′, which are trained.

    Example:
        >>> TKPF(8, n_left=4, n_right=6, blocks=2)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 24])
    """

    reference = "Yu, Cai, Li: Efficient Compact Bilinear Pooling via Kronecker Product, AAAI 2022"
    fidelity = "reconstructed"
    evidence = (
        "the abstract of the paper and a third-party implementation, which mixes positions and is not followed there"
    )
    assumed = (
        "a = b = 64, r = 16 and two pairs, summed, as in a third-party implementation; trained Gaussian projections; "
        "no matrix normalisation before the projection"
    )

    def __init__(
        self,
        in_channels: int,
        *,
        n_left: int = 64,
        n_right: int = 64,
        blocks: int = 16,
        n_pairs: int = 2,
        combine: str = "sum",
        seed: int = 1,
    ) -> None:
        super().__init__(in_channels)
        for option, value in {"n_left": n_left, "n_right": n_right, "blocks": blocks, "n_pairs": n_pairs}.items():
            check_int(self.name, option, value, minimum=1)
        check_int(self.name, "seed", seed, minimum=0)
        check_choice(self.name, "combine", combine, ("sum", "concat"))
        if n_left % blocks or n_right % blocks:
            raise ValueError(
                f"{self.name}: expected n_left and n_right to be multiples of {blocks}, got {n_left}, {n_right}."
            )
        self.n_left, self.n_right, self.blocks, self.n_pairs = n_left, n_right, blocks, n_pairs
        self.combine, self.seed = combine, seed
        self.out_features = n_left * n_right * (n_pairs if combine == "concat" else 1)
        columns = -(-in_channels // blocks)
        weights = random_normal((n_pairs, (n_left + n_right) // blocks, columns), seed) / columns**0.5
        self.weights = nn.Parameter(weights)

    def pool(self, x: Tensor) -> Tensor:
        left, right = self.weights.split([self.n_left // self.blocks, self.n_right // self.blocks], dim=1)
        pairs = zip(left.unbind(), right.unbind(), strict=True)
        products = [kronecker_projection(x.flatten(2), a, b, self.blocks) for a, b in pairs]
        branches = torch.stack([l2_normalize(signed_sqrt(product)) for product in products], dim=1)
        return branches.sum(dim=1) if self.combine == "sum" else branches.flatten(1)
