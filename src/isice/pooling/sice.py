"""SICE: the exact sparse inverse covariance, trained end to end."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from .._checks import check_bool, check_choice, check_int, check_number
from ..ops._linalg import fill_dead_diagonal
from ..ops.correlation import correlation, partial_correlation
from ..ops.graphical_lasso import graphical_lasso
from ..ops.ridge import shrink
from . import SPDPooling, register_pooling


@register_pooling
class SICE(SPDPooling):
    """SICE: the graphical lasso of the channel correlations, solved to a certified duality gap.

    Gradients come from the optimality conditions (implicit differentiation). Channels are scaled to
    unit variance, so λ means the same for every layer and image; a channel without variance stays
    unconnected. The diagonal is not penalised.

    Args:
        sparsity: λ > 0 in the units of ``scale``; for correlations λ ≥ 1 gives a diagonal result.
        scale: The matrix that is solved for: ``"correlation"``, or ``"covariance"`` as in the
            paper's baseline, where a fixed λ depends on the scale of the features.
        learn_sparsity: Train the logarithm of λ, starting at ``sparsity``.
        ridge: r ≥ 0; the matrix R of ``scale`` is shrunk to (R + rμI)/(1 + r) first, where μ is its
            mean eigenvalue, and λ is on the scale of the result. On singular feature maps the
            solver then needs fewer iterations.
        output: ``"precision"``, or ``"partial_correlation"`` (unit diagonal).
        tol: Largest duality gap, as a multiple of D. In float32, 5e-4 and above also limit the
            steps of the gradient's linear system, whose error is then about that of the solution.
        max_iter: Iterations after which a warning reports the gap reached.

    Example:
        >>> SICE(8, sparsity=0.2)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 36])
    """

    reference = (
        "Friedman, Hastie, Tibshirani: Sparse inverse covariance estimation with the graphical lasso, "
        "Biostatistics 2008; as a trainable layer: this package"
    )
    fidelity = "original"
    evidence = "certified by the duality gap; scikit-learn's graphical_lasso in tests/ops/test_graphical_lasso.py"
    estimates_precision = True

    def __init__(
        self,
        in_channels: int,
        *,
        sparsity: float = 0.1,
        scale: Literal["correlation", "covariance"] = "correlation",
        learn_sparsity: bool = False,
        ridge: float = 0.0,
        output: Literal["precision", "partial_correlation"] = "precision",
        tol: float = 1e-4,
        max_iter: int = 500,
    ) -> None:
        super().__init__(in_channels)
        check_number(self.name, "sparsity", sparsity, strict=True)
        check_number(self.name, "ridge", ridge)
        check_choice(self.name, "output", output, ("precision", "partial_correlation"))
        check_number(self.name, "tol", tol, strict=True)
        check_int(self.name, "max_iter", max_iter, minimum=1)
        check_bool(self.name, learn_sparsity=learn_sparsity)
        check_choice(self.name, "scale", scale, ("correlation", "covariance"))
        self.sparsity, self.learn_sparsity, self.ridge = sparsity, learn_sparsity, ridge
        self.scale, self.output, self.tol, self.max_iter = scale, output, tol, max_iter
        self.log_sparsity = nn.Parameter(torch.tensor(math.log(sparsity))) if learn_sparsity else None

    @property
    def needs_positions(self) -> bool:
        return False

    def transform(self, cov: Tensor) -> Tensor:
        sparsity = self.sparsity if self.log_sparsity is None else self.log_sparsity.to(cov.dtype).exp()
        precision = graphical_lasso(
            self._matrix(cov),
            sparsity,
            scale="raw",
            tol=self.tol,
            max_iter=self.max_iter,
            polish=False,
            check_input=False,
        ).precision
        return partial_correlation(precision) if self.output == "partial_correlation" else precision

    def _matrix(self, cov: Tensor) -> Tensor:
        """Return correlations with unit diagonal, or covariances, shrunk by the ridge."""
        matrix = correlation(cov) if self.scale == "correlation" else fill_dead_diagonal(cov)
        return shrink(matrix, self.ridge) / (1 + self.ridge) if self.ridge else matrix
