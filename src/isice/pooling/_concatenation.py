"""Concatenation of several poolings, with the spec ``"isqrt_cov + 2 * gap"``."""

from collections.abc import Iterable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from .._checks import check_number
from ._base import Pooling


class Concatenation(Pooling):
    """Concatenated vectors of several poolings, each times a factor; auxiliary losses are added.

    Args:
        parts: Poolings for the same number of channels; none may return logits.
        factors: One positive factor per pooling.

    Example:
        >>> from isice.pooling import create_pooling
        >>> create_pooling("isqrt_cov + 2 * gap", 8)
        isqrt_cov(n_iter=5, scale=1.0, learn_scale=False, standardize=False) + 2.0 * gap
    """

    name = "concatenation"
    reference = "those of its parts"

    def __init__(self, parts: Sequence[Pooling], factors: Sequence[float]) -> None:
        super().__init__(parts[0].in_channels)
        for part, factor in zip(parts, factors, strict=True):
            check_number(self.name, f"factor of {part.name}", factor, strict=True)
            if part.needs_num_classes:
                raise ValueError(
                    f"{self.name}: expected poolings that return vectors, got {part.name}, which returns logits; "
                    "leave it out of the sum."
                )
        self.parts, self.factors = nn.ModuleList(parts), tuple(factors)
        self.out_features = sum(part.out_features for part in parts)

    def _terms(self) -> list[tuple[Pooling, float]]:
        return list(zip(cast(Iterable[Pooling], self.parts), self.factors, strict=True))

    def pool(self, x: Tensor) -> Tensor:
        return self.pool_with_loss(x)[0]

    def pool_with_loss(self, x: Tensor) -> tuple[Tensor, Tensor]:
        vectors, total = [], x.new_zeros(())
        for part, factor in self._terms():
            vector, loss = part.pool_with_loss(x)
            vectors.append(vector if factor == 1.0 else factor * vector)
            total = total + loss
        return torch.cat(vectors, dim=1), total

    @property
    def wants_data(self) -> bool:
        return any(part.wants_data for part, _ in self._terms())

    def init_from(self, x: Tensor) -> None:
        """Call :meth:`Pooling.init_from` of every part with features (B, C, H, W)."""
        for part, _ in self._terms():
            part.init_from(x)

    @property
    def spec(self) -> str:
        return " + ".join(part.spec if factor == 1.0 else f"{factor!r} * {part.spec}" for part, factor in self._terms())
