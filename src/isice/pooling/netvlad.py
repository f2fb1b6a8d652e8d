"""NetVLAD: residuals to learned centres, softly assigned."""

import torch
from torch import Tensor, nn

from .._checks import check_int, check_number
from ..ops.codebook import assignment_sharpness, kmeans, vlad
from ..ops.signed_sqrt import l2_normalize
from . import Pooling, register_pooling
from ._descriptors import sample_descriptors


@register_pooling
class NetVLAD(Pooling):
    """NetVLAD: residuals to K trained centres, V_k = Σ_t a_k(x_t)(x_t − c_k), softly assigned.

    Positions, each V_k and the whole vector of K·C features are ℓ2-normalised. The assignment is
    a = softmax_k(w_kᵀx) without bias, as the authors prefer. It starts at w = α·c/‖c‖; then w and c
    are trained independently. Centres are random directions until :func:`isice.initialize` sets
    them by k-means.

    Args:
        n_clusters: Number of centres K.
        alpha: Sharpness α of the initial assignment, which :func:`isice.initialize` computes.
        eps: Added to the squared norm of a position. It bounds the gradient of an empty position by
            1/√ε, a number that float16 can hold.
        seed: Seed of the initial centres.

    Example:
        >>> NetVLAD(8, n_clusters=4)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 32])
    """

    reference = "Arandjelović et al.: NetVLAD: CNN Architecture for Weakly Supervised Place Recognition, CVPR 2016"
    fidelity = "verified"
    evidence = "Relja/netvlad (addLayers.m, layerVLAD.m); formula in tests/pooling/test_netvlad.py"
    wants_data = True

    def __init__(
        self, in_channels: int, *, n_clusters: int = 64, alpha: float = 100.0, eps: float = 1e-6, seed: int = 0
    ) -> None:
        super().__init__(in_channels)
        check_int(self.name, "n_clusters", n_clusters, minimum=1)
        check_int(self.name, "seed", seed, minimum=0)
        check_number(self.name, "alpha", alpha, strict=True)
        check_number(self.name, "eps", eps, strict=True)
        self.n_clusters, self.alpha, self.eps, self.seed = n_clusters, alpha, eps, seed
        self.out_features = n_clusters * in_channels
        noise = torch.randn(n_clusters, in_channels, generator=torch.Generator().manual_seed(seed))
        self.centres = nn.Parameter(l2_normalize(noise))
        self.weight = nn.Parameter(alpha * self.centres.detach())

    @torch.no_grad()
    def init_from(self, x: Tensor) -> None:
        """Set centres by k-means on the positions of features (B, C, H, W), α by their scores."""
        descriptors = l2_normalize(sample_descriptors(x).to(self.centres))
        centres, _ = kmeans(descriptors, self.n_clusters, seed=self.seed)
        directions = l2_normalize(centres)
        self.centres.copy_(centres)
        self.weight.copy_(assignment_sharpness(descriptors, directions) * directions)

    def pool(self, x: Tensor) -> Tensor:
        descriptors = l2_normalize(x.flatten(2), dim=1, eps=self.eps)
        residuals = vlad(descriptors, self.centres.to(x.dtype), self.weight.to(x.dtype))
        return l2_normalize(l2_normalize(residuals).flatten(1))
