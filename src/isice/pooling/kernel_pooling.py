"""Kernel pooling: random features of a Taylor-expanded kernel of any order."""

import math

import torch
from torch import Tensor, nn

from .._checks import check_int, check_number
from ..ops.signed_sqrt import l2_normalize, signed_sqrt
from ..ops.sketch import kernel_features, random_hashes
from ._base import Pooling
from ._registry import register_pooling


@register_pooling
class KernelPooling(Pooling):
    """Kernel pooling: sketches of all orders of a Gaussian kernel, signed square root, ℓ2 norm.

    The vector is [α₀, α₁·mean x, α_i·mean TS_i(x) for i = 2…order] with tensor sketches TS_i, of
    size 1 + C + (order − 1)·n_features. The α are trained from the Taylor coefficients of the
    kernel, α_i² = e^{−2γ}(2γ)ⁱ/i!. Order i + 1 reuses the Fourier transforms of order i.

    Args:
        in_channels: Channels of the feature map.
        order: Highest order p.
        n_features: Sketch size of each order.
        gamma: γ of the Gaussian kernel. The paper uses the reciprocal of the mean inner product of
            features.
        normalize_input: Normalise every position to unit length, as the Taylor expansion assumes.
        seed: Seed of the hashes, which are saved with the model.

    Example:
        >>> import torch
        >>> KernelPooling(8, order=3, n_features=31)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 71])
    """

    reference = "Cui, Zhou, Wang, Liu, Lin, Belongie: Kernel Pooling for Convolutional Neural Networks, CVPR 2017"
    fidelity = "reconstructed"
    assumed = "order 4; γ = 1 instead of an estimate from data; positions normalised to unit length also in training"

    index: Tensor
    sign: Tensor

    def __init__(
        self,
        in_channels: int,
        *,
        order: int = 4,
        n_features: int = 4096,
        gamma: float = 1.0,
        normalize_input: bool = True,
        seed: int = 1,
    ) -> None:
        super().__init__(in_channels)
        check_int("kernel_pooling", "order", order, minimum=2)
        check_int("kernel_pooling", "n_features", n_features, minimum=1)
        check_int("kernel_pooling", "seed", seed, minimum=0)
        check_number("kernel_pooling", "gamma", gamma, strict=True)
        self.order, self.n_features, self.gamma = order, n_features, gamma
        self.normalize_input, self.seed = normalize_input, seed
        self.out_features = 1 + in_channels + (order - 1) * n_features
        index, sign = random_hashes(order, in_channels, n_features, seed)
        self.register_buffer("index", index)
        self.register_buffer("sign", sign)
        squares = [math.exp(-2 * gamma) * (2 * gamma) ** i / math.factorial(i) for i in range(order + 1)]
        self.coefficients = nn.Parameter(torch.tensor(squares).sqrt())

    def pool(self, x: Tensor) -> Tensor:
        x = l2_normalize(x.flatten(2), dim=1) if self.normalize_input else x.flatten(2)
        features = kernel_features(x, self.index, self.sign, self.coefficients, self.n_features)
        return l2_normalize(signed_sqrt(features))
