"""LRBP: low-rank bilinear pooling, a classifier that never forms the bilinear feature."""

import torch
from torch import Tensor, nn

from .._checks import check_bool, check_int
from ..ops._numerics import matmul_no_autocast
from ..ops.projection import low_rank_scores
from ..ops.signed_sqrt import signed_sqrt
from . import Pooling, register_pooling
from ._descriptors import sample_descriptors


@register_pooling
class LowRankBilinear(Pooling):
    """LRBP: class scores ⟨U⁺U⁺ᵀ − U⁻U⁻ᵀ, X̃X̃ᵀ⟩/n + b with X̃ = PX and low-rank U± per class.

    Args:
        num_classes: Number of classes; the layer returns their logits.
        n_components: Rows of the projection P, which :func:`isice.initialize` sets to principal
            components.
        rank: Columns of U⁺ and U⁻ together; an even number.
        power_norm: Apply a signed square root to X̃. The published code also trains an exponent.
        average: Divide by the number of positions n. The published code sums over them.

    Example:
        >>> LowRankBilinear(8, num_classes=5)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 5])
    """

    reference = "Kong, Fowlkes: Low-rank Bilinear Pooling for Fine-Grained Classification, CVPR 2017"
    fidelity = "reconstructed"
    evidence = "the scores in aimerykong's published code (bisvm_posneg_UUreg_forward.m)"
    assumed = (
        "100 components and rank 8; no power normalisation; division by the number of positions; random factors of "
        "standard deviation 0.1/√components at the start"
    )
    needs_num_classes = True
    wants_data = True

    def __init__(
        self,
        in_channels: int,
        *,
        num_classes: int,
        n_components: int = 100,
        rank: int = 8,
        power_norm: bool = False,
        average: bool = True,
    ) -> None:
        super().__init__(in_channels)
        check_int(self.name, "num_classes", num_classes, minimum=1)
        check_int(self.name, "n_components", n_components, minimum=1)
        check_int(self.name, "rank", rank, minimum=2)
        check_bool(self.name, power_norm=power_norm, average=average)
        if rank % 2:
            raise ValueError(f"{self.name}: expected an even rank, half for each sign, got {rank}.")
        self.n_components, self.rank, self.power_norm, self.average = n_components, rank, power_norm, average
        self.out_features = num_classes
        self.projection = nn.Parameter(nn.init.orthogonal_(torch.empty(n_components, in_channels)))
        # Small, so that the first scores are near zero, as those of a linear classifier: they are
        # squares, and the mean of features that are not centred would give every class a large
        # random bias.
        self.factors = nn.Parameter(0.1 * torch.randn(num_classes, rank, n_components) / n_components**0.5)
        self.bias = nn.Parameter(torch.zeros(num_classes))

    @torch.no_grad()
    def init_from(self, x: Tensor) -> None:
        """Set P to the leading principal components of the positions of features (B, C, H, W).

        With more rows than channels, the remaining rows keep their random directions.
        """
        descriptors = sample_descriptors(x).to(self.projection)
        centred = descriptors - descriptors.mean(dim=0)
        components = torch.linalg.eigh(centred.mT @ centred).eigenvectors.flip(1).mT[: self.n_components]
        self.projection[: len(components)] = components

    def pool(self, x: Tensor) -> Tensor:
        x = matmul_no_autocast(self.projection.to(x.dtype), x.flatten(2))
        scores = low_rank_scores(signed_sqrt(x) if self.power_norm else x, self.factors)
        return (scores / x.shape[-1] if self.average else scores) + self.bias
