"""FCBN: two-sided projection of the matrix square root (shifted random Maclaurin)."""

from torch import Tensor, nn

from .._checks import check_bool, check_int
from ..ops.newton_schulz import newton_schulz_sqrt
from ..ops.projection import two_sided_projection
from ..ops.second_moment import second_moment
from ..ops.signed_sqrt import l2_normalize, signed_sqrt
from ..ops.sketch import random_signs
from . import Pooling, register_pooling


@register_pooling
class FCBN(Pooling):
    """FCBN: W₁ᵀ (XXᵀ/n)^½ W₂ with random projections, signed square root, ℓ2 normalisation.

    All pairs of the projections give n_left·n_right features at the cost of two thin products.

    Args:
        n_left: Number of projections on the left.
        n_right: Number of projections on the right.
        n_iter: Newton–Schulz steps of the square root.
        learnable: Train the projections.
        seed: Seed of the projections (random signs over √C), which are saved with the model.

    Example:
        >>> FCBN(8, n_left=4, n_right=5)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 20])
    """

    reference = "Yu, Li, Li: Fast and Compact Bilinear Pooling by Shifted Random Maclaurin, AAAI 2021"
    fidelity = "reconstructed"
    evidence = "the abstract and a figure of the paper; no public code"
    assumed = (
        "an approximation of the published method: SRM+ is read as all pairs of two sets of 64 random projections, "
        "fixed signs, and the square root takes 5 Newton–Schulz steps on XXᵀ/n"
    )

    weights: Tensor

    def __init__(
        self,
        in_channels: int,
        *,
        n_left: int = 64,
        n_right: int = 64,
        n_iter: int = 5,
        learnable: bool = False,
        seed: int = 1,
    ) -> None:
        super().__init__(in_channels)
        for option, value in {"n_left": n_left, "n_right": n_right, "n_iter": n_iter}.items():
            check_int(self.name, option, value, minimum=1)
        check_int(self.name, "seed", seed, minimum=0)
        check_bool(self.name, learnable=learnable)
        self.n_left, self.n_right, self.n_iter = n_left, n_right, n_iter
        self.learnable, self.seed = learnable, seed
        self.out_features = n_left * n_right
        weights = random_signs((n_left + n_right, in_channels), seed) / in_channels**0.5
        if learnable:
            self.weights = nn.Parameter(weights)
        else:
            self.register_buffer("weights", weights)

    def pool(self, x: Tensor) -> Tensor:
        left, right = self.weights.split([self.n_left, self.n_right])
        root = newton_schulz_sqrt(second_moment(x), n_iter=self.n_iter)
        return l2_normalize(signed_sqrt(two_sided_projection(root, left, right)))
