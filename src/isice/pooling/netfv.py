"""NetFV: a Fisher vector with learned assignment, means and scales."""

import torch
from torch import Tensor, nn

from .._checks import check_int, check_number
from ..ops.codebook import diagonal_mixture, fisher_vector, kmeans
from ..ops.signed_sqrt import l2_normalize, signed_sqrt
from . import Pooling, register_pooling
from ._descriptors import sample_descriptors


@register_pooling
class NetFV(Pooling):
    """NetFV: moments of (x − μ_k)/σ_k, softly assigned to K components (Fisher vector).

    The assignment is softmax_k(w_kᵀx + b_k), trained independently of μ and σ as in NetVLAD. It
    starts as the posterior of an isotropic mixture around random means or, after
    :func:`isice.initialize`, k-means centres. A signed square root and ℓ2 normalisation follow;
    2·K·C features.

    Args:
        n_components: Mixture components K.
        eps: ε of the signed square root, whose slope is at most 1/(2√ε).
        seed: Seed of the initial means.

    Example:
        >>> NetFV(8, n_components=4)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 64])
    """

    reference = "Lin, RoyChowdhury, Maji: Bilinear CNNs for Fine-grained Visual Recognition, TPAMI 2018 (NetFV)"
    fidelity = "reconstructed"
    evidence = "the fixed Fisher vector layer of gy20073/compact_bilinear_pooling (yang_fv.m); no public code of NetFV"
    assumed = "assignment as in NetVLAD, independent of μ and σ; no prior factors; the initial values of all parameters"
    wants_data = True

    def __init__(self, in_channels: int, *, n_components: int = 64, eps: float = 1e-5, seed: int = 0) -> None:
        super().__init__(in_channels)
        check_int(self.name, "n_components", n_components, minimum=1)
        check_int(self.name, "seed", seed, minimum=0)
        check_number(self.name, "eps", eps, strict=True)
        self.n_components, self.eps, self.seed = n_components, eps, seed
        self.out_features = 2 * n_components * in_channels
        noise = torch.randn(n_components, in_channels, generator=torch.Generator().manual_seed(seed))
        means = noise / in_channels**0.5
        self.means = nn.Parameter(means)
        self.log_scales = nn.Parameter(torch.zeros_like(means))
        self.weight = nn.Parameter(means.clone())
        self.bias = nn.Parameter(-0.5 * means.square().sum(dim=1))

    @torch.no_grad()
    def init_from(self, x: Tensor) -> None:
        """Set all parameters by k-means on the positions of features (B, C, H, W)."""
        descriptors = sample_descriptors(x).to(self.means)
        centres, nearest = kmeans(descriptors, self.n_components, seed=self.seed)
        scales, variance = diagonal_mixture(descriptors, centres, nearest)
        self.means.copy_(centres)
        self.log_scales.copy_(scales.log())
        self.weight.copy_(centres / variance)
        self.bias.copy_(-0.5 * centres.square().sum(dim=1) / variance)

    def pool(self, x: Tensor) -> Tensor:
        parameters = (p.to(x.dtype) for p in (self.means, self.log_scales, self.weight, self.bias))
        return l2_normalize(signed_sqrt(fisher_vector(x.flatten(2), *parameters).flatten(1), self.eps))
