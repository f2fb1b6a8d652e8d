"""Kernel pooling: random features of a Taylor-expanded kernel of any order."""

import math

import torch
from torch import Tensor, nn

from .._checks import check_bool, check_int, check_number
from ..ops.signed_sqrt import l2_normalize, signed_sqrt
from ..ops.sketch import kernel_features, random_hashes
from . import Pooling, register_pooling

# Beyond it e^{−2γ} underflows: the mean inner product of such features is almost zero.
_LARGEST_GAMMA = 40.0


@register_pooling
class KernelPooling(Pooling):
    """Kernel pooling: sketches of all orders of a Gaussian kernel, signed square root, ℓ2 norm.

    The vector is [α₀, α₁·mean x, α_i·mean TS_i(x) for i = 2…order] with tensor sketches TS_i, of
    size 1 + C + (order − 1)·n_features. The α are trained from the Taylor coefficients of the
    kernel, α_i² = e^{−2γ}(2γ)ⁱ/i!. Order i + 1 reuses the Fourier transforms of order i.

    Args:
        order: Highest order p.
        n_features: Sketch size of each order.
        gamma: γ of the Gaussian kernel; None for the reciprocal of the mean inner product of two
            positions of an image in training features (:func:`isice.initialize`), and 1 until
            then.
        normalize_input: Normalise every position to unit length, as the Taylor expansion assumes.
        seed: Seed of the hashes, which are saved with the model.

    Example:
        >>> KernelPooling(8, order=3, n_features=31)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 71])
    """

    reference = "Cui, Zhou, Wang, Liu, Lin, Belongie: Kernel Pooling for Convolutional Neural Networks, CVPR 2017"
    fidelity = "reconstructed"
    evidence = "the third-party layer of rgmyr/keras-texture; no public code of the authors"
    assumed = (
        "order 4; γ from a few training batches; positions normalised to unit length also in training, which the "
        "third-party layer leaves to its input"
    )

    index: Tensor
    sign: Tensor

    def __init__(
        self,
        in_channels: int,
        *,
        order: int = 4,
        n_features: int = 4096,
        gamma: float | None = None,
        normalize_input: bool = True,
        seed: int = 1,
    ) -> None:
        super().__init__(in_channels)
        check_int(self.name, "order", order, minimum=2)
        check_int(self.name, "n_features", n_features, minimum=1)
        check_int(self.name, "seed", seed, minimum=0)
        check_bool(self.name, normalize_input=normalize_input)
        if gamma is not None:
            check_number(self.name, "gamma", gamma, strict=True)
        self.order, self.n_features, self.gamma = order, n_features, gamma
        self.normalize_input, self.seed = normalize_input, seed
        self.out_features = 1 + in_channels + (order - 1) * n_features
        index, sign = random_hashes(order, in_channels, n_features, seed)
        self.register_buffer("index", index)
        self.register_buffer("sign", sign)
        self.coefficients = nn.Parameter(_taylor_coefficients(1.0 if gamma is None else gamma, order))

    @property
    def wants_data(self) -> bool:
        return self.gamma is None

    @torch.no_grad()
    def init_from(self, x: Tensor) -> None:
        """Set α to the Taylor coefficients for the γ of features (B, C, H, W)."""
        if self.gamma is not None:
            return
        # The mean over all pairs of positions of an image is the squared length of its mean.
        inner = self._positions(x).mean(dim=-1).square().sum(dim=1).mean().item()
        gamma = 1 / max(inner, 1 / _LARGEST_GAMMA)
        self.coefficients.copy_(_taylor_coefficients(gamma, self.order))

    def _positions(self, x: Tensor) -> Tensor:
        return l2_normalize(x.flatten(2), dim=1) if self.normalize_input else x.flatten(2)

    def pool(self, x: Tensor) -> Tensor:
        x = self._positions(x)
        features = kernel_features(x, self.index, self.sign, self.coefficients, self.n_features)
        return l2_normalize(signed_sqrt(features))


def _taylor_coefficients(gamma: float, order: int) -> Tensor:
    """Return α_i = √(e^{−2γ}(2γ)ⁱ/i!) for i = 0 … ``order``."""
    squares = [math.exp(-2 * gamma) * (2 * gamma) ** i / math.factorial(i) for i in range(order + 1)]
    return torch.tensor(squares).sqrt()
