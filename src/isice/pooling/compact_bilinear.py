"""Compact bilinear pooling: random features of the second-order kernel."""

from torch import Tensor

from .._checks import check_choice, check_int
from ..ops._numerics import scale_down
from ..ops.signed_sqrt import l2_normalize, signed_sqrt
from ..ops.sketch import random_hashes, random_maclaurin, random_signs, tensor_sketch
from . import Pooling, register_pooling


@register_pooling
class CompactBilinear(Pooling):
    """Compact bilinear pooling: random sketch of Σ_t x_t x_tᵀ, signed square root, ℓ2 norm.

    Args:
        method: ``"tensor_sketch"`` (circular convolution of two count sketches) or
            ``"random_maclaurin"`` (product of two random projections of C·n_features weights).
        n_features: Output size; 8192 as published.
        seed: Seed of the random projections, which are saved with the model.

    Example:
        >>> CompactBilinear(8, n_features=31)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 31])
    """

    reference = "Gao, Beijbom, Zhang, Darrell: Compact Bilinear Pooling, CVPR 2016"
    fidelity = "verified"
    evidence = "gy20073/compact_bilinear_pooling (Matlab and Caffe); formula in tests/pooling/test_compact_bilinear.py"

    index: Tensor
    sign: Tensor
    weights: Tensor

    def __init__(
        self, in_channels: int, *, method: str = "tensor_sketch", n_features: int = 8192, seed: int = 1
    ) -> None:
        super().__init__(in_channels)
        check_choice(self.name, "method", method, ("tensor_sketch", "random_maclaurin"))
        check_int(self.name, "n_features", n_features, minimum=1)
        check_int(self.name, "seed", seed, minimum=0)
        self.method, self.n_features, self.seed = method, n_features, seed
        self.out_features = n_features
        if method == "tensor_sketch":
            index, sign = random_hashes(2, in_channels, n_features, seed)
            self.register_buffer("index", index)
            self.register_buffer("sign", sign)
        else:
            self.register_buffer("weights", random_signs((2, n_features, in_channels), seed))

    def pool(self, x: Tensor) -> Tensor:
        x = scale_down(x.flatten(2), dim=(1, 2))
        if self.method == "tensor_sketch":
            features = tensor_sketch(x, self.index, self.sign, self.n_features)
        else:
            features = random_maclaurin(x, self.weights)
        return l2_normalize(signed_sqrt(features))
