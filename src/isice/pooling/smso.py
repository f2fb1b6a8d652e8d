"""SMSO: statistically-motivated second-order pooling."""

import torch
from torch import Tensor, nn

from .._checks import check_bool, check_int, check_number
from ..ops.covariance import covariance
from ..ops.second_moment import quadratic_forms
from ..ops.signed_sqrt import signed_sqrt
from . import Pooling, register_pooling


@register_pooling
class SMSO(Pooling):
    """SMSO: square roots of the variances w_kᵀΣw_k along trained directions w_k.

    The features are √(2·w_kᵀΣw_k) with the unbiased Σ (divided by n − 1). The published network has
    batch normalisation before Σ and after the root; it makes an image depend on its batch in
    training, so here it is an option.

    Args:
        n_features: Number of directions, the output size.
        batch_norm: Normalise the features and the vector by batch normalisation, as published.
        eps: ε of the signed square root, whose slope is at most 1/(2√ε).
        seed: Seed of the initial directions (Glorot).

    Example:
        >>> SMSO(8, n_features=32)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 32])
    """

    reference = "Yu, Salzmann: Statistically-motivated Second-order Pooling, ECCV 2018"
    fidelity = "reconstructed"
    evidence = "kcyu2014/smsop; formula in tests/pooling/test_smso.py"
    assumed = "2048 features; no batch normalisation by default, since the published tables do not say"

    def __init__(
        self, in_channels: int, *, n_features: int = 2048, batch_norm: bool = False, eps: float = 1e-5, seed: int = 0
    ) -> None:
        super().__init__(in_channels)
        check_int(self.name, "n_features", n_features, minimum=1)
        check_int(self.name, "seed", seed, minimum=0)
        check_number(self.name, "eps", eps, strict=True)
        check_bool(self.name, batch_norm=batch_norm)
        self.n_features, self.batch_norm, self.eps, self.seed = n_features, batch_norm, eps, seed
        self.out_features = n_features
        self.weight = nn.Parameter(torch.empty(in_channels, n_features))
        nn.init.xavier_uniform_(self.weight, generator=torch.Generator().manual_seed(seed))
        self.norm_in = nn.BatchNorm2d(in_channels) if batch_norm else nn.Identity()
        self.norm_out = nn.BatchNorm1d(n_features) if batch_norm else nn.Identity()

    def pool(self, x: Tensor) -> Tensor:
        positions = x.shape[-2] * x.shape[-1]
        unbiased = covariance(self.norm_in(x)) * (positions / max(positions - 1, 1))
        features: Tensor = self.norm_out(signed_sqrt(2 * quadratic_forms(unbiased, self.weight.to(x.dtype)), self.eps))
        return features
