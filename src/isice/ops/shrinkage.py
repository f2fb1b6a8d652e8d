"""④ Features → the weight of shrinkage that their covariance needs, one value per image.

A sample covariance from few positions spreads its eigenvalues too far. Shrinkage pulls them
together. Ledoit–Wolf and OAS estimate ρ in (1 − ρ)Σ + ρ·μI, with μ the mean eigenvalue.
Schäfer–Strimmer shrinks correlations, so its target is the diagonal of Σ. The fourth moments that
Ledoit–Wolf and Schäfer–Strimmer need, summed over all pairs, are Σ_n ‖x_n‖⁴, without outer
products.
"""

from typing import Literal

import torch
from torch import Tensor

from .._checks import check_choice
from ._linalg import NO_VARIANCE
from ._numerics import full_precision
from .covariance import covariance, flat_features

ShrinkageRule = Literal["ledoit_wolf", "oas", "schaefer_strimmer"]
# Bounds on ρ: at 0 a singular matrix has no inverse, at 1 the ridge is infinite.
_MARGIN = 1e-3


def _ratio(numerator: Tensor, denominator: Tensor, otherwise: float) -> Tensor:
    """numerator/denominator in [0, 1]; ``otherwise`` where the denominator vanishes."""
    counts = denominator > NO_VARIANCE
    quotient = numerator / torch.where(counts, denominator, 1.0)
    return torch.where(counts, quotient, otherwise).clamp(0.0, 1.0)


def _unit_mean_eigenvalue(who: str, x: Tensor) -> Tensor:
    """Return centred features (..., D, N), scaled to a mean eigenvalue of one (or zero)."""
    features = flat_features(who, x)
    centred = features - features.mean(dim=-1, keepdim=True)
    mean_eigenvalue = centred.square().mean(dim=(-2, -1), keepdim=True)
    varies = mean_eigenvalue > NO_VARIANCE
    return torch.where(varies, centred * torch.where(varies, mean_eigenvalue, 1.0).rsqrt(), 0.0)


def _squared_norm(x: Tensor) -> Tensor:
    """‖Σ‖² of centred features."""
    return covariance(x).square().sum(dim=(-2, -1))


def _squared_distance(x: Tensor, norm: Tensor) -> Tensor:
    """‖Σ − I‖² = ‖Σ‖² − D of features with tr Σ = D; 0 without variance or for a single channel."""
    varies = (x != 0).any(-1).any(-1)
    return torch.where(varies & (x.shape[-2] > 1), norm - x.shape[-2], 0.0)


@full_precision
def ledoit_wolf(x: Tensor) -> Tensor:
    """Ledoit–Wolf intensity ρ of the shrinkage towards μI (J. Multivariate Analysis, 2004).

    Args:
        x: Feature maps (B, C, H, W), or feature sets (B, C, N) or (C, N).

    Returns:
        Values in [0, 1], one per image; 0 without variance or for a single channel, as in
        scikit-learn.

    Example:
        >>> ledoit_wolf(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2])
    """
    x = _unit_mean_eigenvalue("ledoit_wolf", x)
    norm = _squared_norm(x)
    fourth = x.square().sum(-2).square().mean(-1)
    return _ratio((fourth - norm) / x.shape[-1], _squared_distance(x, norm), otherwise=0.0)


@full_precision
def oas(x: Tensor) -> Tensor:
    """Oracle approximating shrinkage towards μI (Chen et al., IEEE Trans. Signal Proc., 2010).

    Like scikit-learn, without the published terms 2/D. Arguments as in :func:`ledoit_wolf`.

    Returns:
        Values in [0, 1], one per image; 1 without variance; 0 for a single channel, as in
        scikit-learn.

    Example:
        >>> oas(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2])
    """
    x = _unit_mean_eigenvalue("oas", x)
    D, N = x.shape[-2:]
    norm = _squared_norm(x)
    return _ratio(norm + D * D, (N + 1) * _squared_distance(x, norm), otherwise=float(D > 1))


@full_precision
def schaefer_strimmer(x: Tensor) -> Tensor:
    """Shrinkage of correlations towards zero (Schäfer and Strimmer 2005).

    It is Σ_{i≠j} Var(r_ij)/Σ_{i≠j} r_ij², and shrinks the covariance towards its own diagonal. A
    channel without variance correlates with nothing. Arguments as in :func:`ledoit_wolf`.

    Returns:
        Values in [0, 1], one per image; 0 where nothing correlates.

    Example:
        >>> schaefer_strimmer(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2])
    """
    x = _unit_mean_eigenvalue("schaefer_strimmer", x)
    N = x.shape[-1]
    variance = x.square().mean(-1, keepdim=True)
    varies = variance > NO_VARIANCE * variance.amax(-2, keepdim=True).clamp_min(NO_VARIANCE)
    squares = x.square() * torch.where(varies, torch.where(varies, variance, 1.0).reciprocal(), 0.0)
    scaled = x * torch.where(varies, torch.where(varies, variance, 1.0).rsqrt(), 0.0)
    off_diagonal = _squared_norm(scaled) - varies.sum(dim=(-2, -1))
    fourth = (squares.sum(-2).square() - squares.square().sum(-2)).mean(-1)
    return _ratio((fourth - off_diagonal) / max(N - 1, 1), off_diagonal, otherwise=0.0)


RULES = {"ledoit_wolf": ledoit_wolf, "oas": oas, "schaefer_strimmer": schaefer_strimmer}


def shrinkage_ridge(x: Tensor, rule: ShrinkageRule) -> Tensor:
    """Return the ridge ρ/(1 − ρ), in units of the mean eigenvalue, for a rule's intensity ρ.

    (1 − ρ)Σ + ρ·μI is a multiple of Σ/μ + ρ/(1 − ρ)·I. The intensity is kept within [0.001, 0.999].
    For ``"schaefer_strimmer"`` apply the ridge to the correlation matrix instead of Σ.

    Args:
        x: Feature maps (B, C, H, W), or feature sets (B, C, N) or (C, N).
        rule: ``"ledoit_wolf"``, ``"oas"`` or ``"schaefer_strimmer"``.

    Example:
        >>> shrinkage_ridge(torch.rand(2, 8, 7, 7), "oas").shape
        torch.Size([2])
    """
    check_choice("shrinkage_ridge", "rule", rule, RULES)
    intensity = RULES[rule](x).clamp(_MARGIN, 1.0 - _MARGIN)
    return intensity / (1.0 - intensity)
