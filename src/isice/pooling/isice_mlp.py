"""iSICE+MLP: iSICE whose step size and sparsity are set per image by two small modulators."""

import math
from typing import Any

from torch import Tensor, nn

from .._checks import check_number
from ..ops.covariance import covariance
from ..ops.isice_modulated import modulation, modulation_penalty
from ._registry import register_pooling
from .isice import ISICE


@register_pooling
class ISICEMLP(ISICE):
    """iSICE+MLP: iSICE with η·κ₁ and λ·κ₂, where κ = τ + 2·sigmoid(FC(X1/n)) is computed per image.

    The auxiliary loss γ(κ − 1)² pulls the modulators κ towards one, where they start (zero
    weights, and a bias that makes up for τ).

    Args:
        tau: τ, the smallest value of a modulator.
        gamma: γ, weight of the auxiliary loss.
        **options: Options of ``isice``.

    Example:
        >>> vector, loss = ISICEMLP(8)(torch.rand(2, 8, 7, 7), return_loss=True)
        >>> vector.shape, loss.shape
        (torch.Size([2, 36]), torch.Size([]))
    """

    reference = "Rahman et al.: Learning Partial Correlation based Deep Visual Representation, CVPR 2023"
    fidelity = "reconstructed"
    evidence = "the formulas of κ and of its loss in the paper; no public code"
    assumed = "one fully connected layer for both modulators, which start at one; a plus before γ(κ − 1)²"

    def __init__(self, in_channels: int, *, tau: float = 0.01, gamma: float = 1e-4, **options: Any) -> None:
        super().__init__(in_channels, **options)
        check_number(self.name, "tau", tau)
        if tau >= 1:
            raise ValueError(f"{self.name}: expected tau < 1, so that a modulator can be one, got {tau}.")
        check_number(self.name, "gamma", gamma)
        self.tau, self.gamma = tau, gamma
        self.modulators = nn.Linear(self.modulator_inputs, 2)
        nn.init.zeros_(self.modulators.weight)
        nn.init.constant_(self.modulators.bias, math.log((1 - tau) / (1 + tau)))

    @property
    def modulator_inputs(self) -> int:
        """Number of inputs of the modulators."""
        return self.in_channels

    def modulate(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Return the factors of η and λ, each (B,), for inputs (B, modulator_inputs)."""
        step_factor, sparsity_factor = modulation(self.modulators(seen), self.tau).unbind(-1)
        return step_factor, sparsity_factor

    def estimate_with_loss(self, x: Tensor, vectorized: bool) -> tuple[Tensor, Tensor]:
        """Return the matrix (B, D, D), or its vectorised upper triangle, and the auxiliary loss."""
        step_factor, sparsity_factor = self.modulate(x.mean(dim=(-2, -1)))
        lam, eta = self.sparsity * sparsity_factor, self.step_size * step_factor
        estimate = self.estimate(covariance(x), lam, eta, vectorized)
        return estimate, modulation_penalty(step_factor, sparsity_factor, gamma=self.gamma)

    def matrix(self, x: Tensor) -> Tensor:
        return self.estimate_with_loss(x, vectorized=False)[0]

    def pool(self, x: Tensor) -> Tensor:
        return self.pool_with_loss(x)[0]

    def pool_with_loss(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.estimate_with_loss(x, vectorized=True)
