"""HIHCA: higher-order integration of hierarchical convolutional activations."""

import torch
from torch import Tensor, nn

from .._checks import check_bool, check_int
from ..ops.signed_sqrt import l2_normalize, signed_sqrt
from ..ops.sketch import random_maclaurin, random_signs
from . import Pooling, register_pooling


@register_pooling
class HIHCA(Pooling):
    """HIHCA: trained polynomial features Σ_t ∏_s (U_s x_t), signed square root, ℓ2 norm.

    The product of degree r runs over s = 1 … r. The published network concatenates several layers,
    each with a trained scale; this one takes one feature map. Output size: ``n_features`` if
    homogeneous, else C + (degree − 1)·n_features.

    Args:
        degree: Highest degree r of the polynomial.
        homogeneous: Use the highest degree only; otherwise channel means and all degrees from 2.
        n_features: Features per degree; 8192 as published.
        seed: Seed of the initial weights, random signs over √n_features.

    Example:
        >>> HIHCA(8, degree=3, homogeneous=False, n_features=31)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 70])
    """

    reference = (
        "Cai, Zuo, Zhang: Higher-Order Integration of Hierarchical Convolutional Activations for Fine-Grained "
        "Visual Categorization, ICCV 2017"
    )
    fidelity = "reconstructed"
    evidence = "cssjcai/hihca (hihca_main.m) for one map; formula in tests/pooling/test_hihca.py"
    assumed = "one feature map instead of several layers with trained factors; degree 2"

    def __init__(
        self, in_channels: int, *, degree: int = 2, homogeneous: bool = True, n_features: int = 8192, seed: int = 1
    ) -> None:
        super().__init__(in_channels)
        check_int(self.name, "degree", degree, minimum=2)
        check_int(self.name, "n_features", n_features, minimum=1)
        check_int(self.name, "seed", seed, minimum=0)
        check_bool(self.name, homogeneous=homogeneous)
        self.degree, self.homogeneous, self.n_features, self.seed = degree, homogeneous, n_features, seed
        degrees = [degree] if homogeneous else list(range(2, degree + 1))
        signs = [random_signs((r, n_features, in_channels), seed + r) for r in degrees]
        self.weights = nn.ParameterList([nn.Parameter(sign / n_features**0.5) for sign in signs])
        self.out_features = n_features * len(degrees) + (0 if homogeneous else in_channels)

    def pool(self, x: Tensor) -> Tensor:
        x = x.flatten(2)
        features = [] if self.homogeneous else [x.mean(dim=-1)]
        features += [random_maclaurin(x, weights) for weights in self.weights]
        return l2_normalize(signed_sqrt(torch.cat(features, dim=-1)))
