"""iSICE+MLP*: modulators computed in every step, with the gradient ∇₁ as a further input."""

from typing import Any, Literal

import torch
from torch import Tensor

from .._checks import check_choice
from ..ops.covariance import covariance
from ..ops.isice_modulated import isice_modulated, modulation_penalty
from ..ops.ridge import shrink
from ..ops.vectorize import vectorize
from ._registry import register_pooling
from .isice_mlp import ISICEMLP


@register_pooling
class ISICEMLPStar(ISICEMLP):
    """iSICE+MLP*: iSICE with κ = τ + 2·sigmoid(FC([X1/n, ∇₁])) in every step (paper, appendix).

    Args:
        summary: How the D×D matrix ∇₁ is summarised: by its row means or its diagonal, times D,
            since its trace is about one.
        first_gradient: Must be ``"inverse"``.
        **options: Options of ``isice_mlp``.

    Example:
        >>> ISICEMLPStar(8)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 36])
    """

    fidelity = "reconstructed"
    evidence = "the description in the paper's appendix; no public code"
    assumed = "∇₁ enters the fully connected layer as D times its row means, which the paper does not specify"

    def __init__(
        self, in_channels: int, *, summary: Literal["row_mean", "diagonal"] = "row_mean", **options: Any
    ) -> None:
        super().__init__(in_channels, **options)
        check_choice(self.name, "summary", summary, ("row_mean", "diagonal"))
        check_choice(self.name, "first_gradient", self.first_gradient, ("inverse",))
        self.summary = summary

    @property
    def modulator_inputs(self) -> int:
        return 2 * self.in_channels

    def estimate_with_loss(self, x: Tensor, vectorized: bool) -> tuple[Tensor, Tensor]:
        pooled, factors = x.mean(dim=(-2, -1)), []

        def modulate(nabla: Tensor) -> tuple[Tensor, Tensor]:
            summary = nabla.diagonal(dim1=-2, dim2=-1) if self.summary == "diagonal" else nabla.mean(dim=-1)
            step_factor, sparsity_factor = self.modulate(torch.cat([pooled, self.in_channels * summary], dim=-1))
            factors.append((step_factor, sparsity_factor))
            return step_factor, sparsity_factor

        cov = covariance(x)
        matrix = isice_modulated(
            shrink(cov, self.ridge) if self.ridge else cov,
            modulate,
            sparsity=self.sparsity,
            step_size=self.step_size,
            n_iter=self.n_iter,
            n_inverse_iter=self.n_inverse_iter,
            normalize=self.normalize,
            alpha=self.alpha,
        )
        penalties = (modulation_penalty(*pair, gamma=self.gamma / len(factors)) for pair in factors)
        loss = sum(penalties, x.new_zeros(()))
        return vectorize(matrix) if vectorized else matrix, loss
