"""The graphical lasso in the units of its input: standardization, and the certificate of a result."""

import math
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..._checks import check_choice
from .certificate import chunks, duality_gap
from .solver import SATURATE, Outputs, solve

SCALES = ("raw", "correlation", "trace")
DEFAULT_SCALE = "correlation"
DEFAULT_TOL = 1e-6


class Problem(NamedTuple):
    """Matrices S (B, D, D), penalties Λ (B, 1, 1) or (B, D, D), and whether the diagonal is penalized."""

    cov: Tensor
    penalty: Tensor
    penalize_diagonal: bool

    def select(self, index: Tensor) -> "Problem":
        """Return some of the problems."""
        return Problem(self.cov[index], self.penalty[index], self.penalize_diagonal)

    def solve(self, dtype: torch.dtype, tol: float, max_iter: int, init: Tensor | None) -> Outputs:
        """Solve in ``dtype``; precision and covariance are rounded to the dtype of the input.

        The gap is that of the standardized problem. In float64 it is that of the result, too.
        """
        standard, weights, scale, solvable = standardize(
            self.cov.to(dtype), self.penalty.to(dtype), self.penalize_diagonal
        )
        start = None if init is None else _finite_start(init.to(dtype), scale * scale.mT, solvable)
        result = solve(standard, weights, tol, max_iter, start)
        del standard, weights
        if not bool((scale == 1).all()):
            units = scale * scale.mT
            result.precision.div_(units)
            result.covariance.mul_(units)
            result.dual.mul_(units)
        result = result._replace(
            precision=result.precision.to(self.cov.dtype), covariance=result.covariance.to(self.cov.dtype)
        )
        if not bool(solvable.all()):
            for tensor in (result.precision, result.covariance, result.gap, result.dual):
                tensor[~solvable] = math.nan
        return result

    def certify(self, result: Outputs) -> Outputs:
        """Return the result with a feasible float64 dual and the gap of the given S, Λ and Θ in float64."""
        dual = torch.empty_like(result.dual, dtype=torch.float64)
        gap = torch.empty_like(result.gap)
        for part in chunks(torch.arange(len(gap), device=gap.device)):
            cov, penalty = _symmetric(self.cov[part].double()), _symmetric(self.penalty[part].double())
            penalty = penalty.expand_as(cov).clone()
            if not self.penalize_diagonal:
                penalty.diagonal(dim1=-2, dim2=-1).zero_()
            theta = result.precision[part].double()
            v = result.dual[part].double().sub_(cov)
            if result.dual.dtype == torch.float32:
                v.add_(theta, alpha=SATURATE)  # where Θ is not zero the dual is at its bound, which float32 may miss
            v.clamp_(-penalty, penalty)
            dual[part] = v.add_(cov)
            gap[part] = duality_gap(cov, penalty, theta, v)
        gap = torch.where(torch.isnan(result.gap), math.nan, gap)
        return result._replace(gap=gap, dual=dual)


def standardize(cov: Tensor, penalty: Tensor, penalize_diagonal: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return S with unit diagonal, Λ with zero diagonal, the scale (B, D, 1) and solvability (B,).

    At the optimum W_ii = S_ii + Λ_ii, so a penalty on the diagonal is added to S. The duality gap
    does not depend on the units of the variables.
    """
    cov = (cov + cov.mT).mul_(0.5)
    penalty = _symmetric(penalty)
    finite = _is_finite(cov) & _is_finite(penalty)
    penalty = penalty.expand_as(cov)
    variance = cov.diagonal(dim1=-2, dim2=-1).clone()
    if penalize_diagonal:
        variance = variance + penalty.diagonal(dim1=-2, dim2=-1)
    # The reciprocal of a smaller variance overflows.
    solvable = finite & (variance >= torch.finfo(cov.dtype).tiny).all(-1)
    scale = torch.where(solvable[:, None], variance, 1.0).sqrt().unsqueeze(-1)
    if bool((scale == 1).all()):
        standard, weights = cov, penalty.clone(memory_format=torch.contiguous_format)
    else:
        units = scale * scale.mT
        standard, weights = cov.div_(units), penalty / units
    if not bool(solvable.all()):
        unsolvable = ~solvable[:, None, None]
        standard, weights = standard.masked_fill(unsolvable, 0.0), weights.masked_fill(unsolvable, 1.0)
    standard.diagonal(dim1=-2, dim2=-1).fill_(1.0)
    weights.diagonal(dim1=-2, dim2=-1).fill_(0.0)
    return standard, weights, scale, solvable


def _symmetric(matrix: Tensor) -> Tensor:
    return 0.5 * (matrix + matrix.mT)


def _is_finite(matrices: Tensor) -> Tensor:
    """Return per matrix whether all entries are finite; aminmax propagates NaN."""
    if not matrices.numel():
        return torch.ones(len(matrices), dtype=torch.bool, device=matrices.device)
    smallest, largest = matrices.flatten(1).aminmax(dim=1)
    return torch.isfinite(smallest) & torch.isfinite(largest)


def _finite_start(init: Tensor, units: Tensor, solvable: Tensor) -> Tensor:
    """Return precision and dual (B, 2, D, D) of the standardized problem, I where they are not finite."""
    identity = torch.eye(init.shape[-1], dtype=init.dtype, device=init.device)
    start = torch.stack([init[:, 0] * units, init[:, 1] / units], dim=1)
    usable = solvable & _is_finite(start)
    return torch.where(usable[:, None, None, None], _symmetric(start), identity)


def checked_scale(
    who: str, scale: str | None, cov: Tensor, *, scales: Sequence[str] = SCALES, warn: bool = True
) -> str:
    """Return the unit of λ, with a warning where its default, once ``"raw"``, changes the result."""
    if scale is not None:
        check_choice(who, "scale", scale, scales)
        return scale
    variance = cov.detach().diagonal(dim1=-2, dim2=-1)
    if warn and not torch.compiler.is_compiling() and bool(((variance - 1).abs() > 1e-3).any()):
        warnings.warn(
            f"{who}: sparsity is on the scale of correlations unless scale is given; it was that of cov. Pass "
            f"scale={DEFAULT_SCALE!r} to accept the new default, or scale='raw' for the former results.",
            FutureWarning,
            stacklevel=3,
        )
    return DEFAULT_SCALE
