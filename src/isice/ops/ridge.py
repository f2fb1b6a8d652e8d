"""⑤ The inverse of a shrunk covariance, and spectral maps that saturate like it.

D·Σ' with Σ' = Σ/tr Σ has mean eigenvalue one. I − r(D·Σ' + rI)⁻¹ maps its eigenvalue x to
x/(x + r): it keeps weak directions and saturates at the leading ones. log(1 + x/r) saturates more
slowly.
"""

from typing import Any, Literal, cast

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from .._checks import check_choice, check_number, check_symmetric
from ._linalg import add_diagonal, normalize_trace, out_of_place, per_matrix, plus_transpose, symmetric, trace
from ._numerics import baddbmm_no_tf32, full_precision, matmul_no_tf32
from .newton_schulz import newton_schulz_sqrt
from .spectral import matrix_log, matrix_power

SaturatingMap = Literal["ratio", "log"]
# Newton–Schulz steps of the square root, as in iSQRT-COV.
_SQRT_STEPS = 5
# Newton's iteration stops when the relative error of every inverse is below this.
_NEWTON_TOLERANCE = 1e-7
# A ridge per image is not known before a GPU has computed it: steps suffice for this one,
# the least of the rules.
_LEAST_RIDGE = 1e-3


def ridge_inverse_reference(cov: Tensor, ridge: float | Tensor) -> Tensor:
    """(D·Σ/tr Σ + rI)⁻¹ by autograd, for positive traces; oracle of :func:`ridge_inverse`."""
    weight = ridge[..., None, None] if isinstance(ridge, Tensor) else ridge
    D = cov.shape[-1]
    total = cov.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    shifted = D * cov / total + weight * torch.eye(D, dtype=cov.dtype, device=cov.device)
    return cast(Tensor, torch.linalg.inv(shifted))


def newton_steps(ridge: float, size: int) -> int:
    """Return the steps of :func:`newton_inverse` that suffice for every D·Σ' (D, D).

    Example:
        >>> newton_steps(10.0, 256), newton_steps(1.0, 256)
        (6, 8)
    """
    rho, steps = size / (size + 2 * ridge), 1
    while rho**2 > _NEWTON_TOLERANCE:
        rho, steps = rho**2 / (2 - rho**2), steps + 1
    return steps


def newton_inverse(matrix: Tensor, ridge: float | Tensor, n_iter: int) -> Tensor:
    """Compute (D·Σ' + rI)⁻¹ (B, D, D) by X ← X(2I − MX): 2(n − 1) products for n steps.

    The eigenvalues of M lie between r and r + D, whatever Σ. With those of XM in [1 − ρ, 1 + ρ] a
    step brings them to [1 − ρ², 1]; a factor 2/(2 − ρ²) then centres them on one again, which makes
    the first steps twice as effective.
    """
    size = matrix.shape[-1]
    middle, rho = ridge + 0.5 * size, size / (size + 2 * ridge)
    x = add_diagonal(-matrix / middle, 2.0) / middle
    for _ in range(n_iter - 1):
        factor, rho = 2 / (2 - rho**2), rho**2 / (2 - rho**2)
        x = x * factor
        x = baddbmm_no_tf32(x, x, matmul_no_tf32(matrix, x), beta=2.0, alpha=-1.0)
    return symmetric(x)


class _RidgeInverse(torch.autograd.Function):
    """(D·Σ' + rI)⁻¹ of (B, D, D); keeps its output only. The backward pass differentiates too.

    Cholesky on a CPU. Elsewhere that is slow (GPU) or missing (ONNX): Newton's iteration.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor, ridge: float | Tensor) -> Tensor:
        if matrix.device.type == "cpu" and not torch.compiler.is_compiling():
            try:
                return torch.cholesky_inverse(torch.linalg.cholesky(matrix))
            except LinAlgError as error:
                raise LinAlgError(
                    "ridge_inverse: expected finite matrices and a ridge beyond their rounding error, got a "
                    f"singular sum in {matrix.dtype}; check the features, or use a larger ridge or float64."
                ) from error
        least = _LEAST_RIDGE if isinstance(ridge, Tensor) else ridge
        return out_of_place(newton_inverse(matrix, ridge, newton_steps(least, matrix.shape[-1])))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float | Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (out,) = ctx.saved_tensors
        with torch.autocast(out.device.type, enabled=False):
            d_inverse = plus_transpose(grads[0]).mul_(-0.5)
            return matmul_no_tf32(matmul_no_tf32(out, d_inverse), out), None


def _detached(ridge: float | Tensor) -> float | Tensor:
    """Return the ridge as a constant: its gradient goes through the diagonal."""
    return ridge.detach() if isinstance(ridge, Tensor) else ridge


def _unit_mean(flat: Tensor) -> Tensor:
    """D·Σ/tr Σ of (B, D, D); the identity where there is no variance."""
    return normalize_trace(flat).matrix * flat.shape[-1]


@full_precision
def ridge_inverse(cov: Tensor, ridge: float | Tensor) -> Tensor:
    """(D·Σ' + rI)⁻¹ with Σ' = Σ/tr Σ: inverse of a covariance shrunk towards the identity.

    Args:
        cov: Covariance matrices (..., D, D), singular ones too.
        ridge: r > 0 in units of the mean eigenvalue: a number, or a tensor of one value per matrix.

    Example:
        >>> ridge_inverse(torch.tensor([[1.0, 0.5], [0.5, 1.0]]), 1.0)
        tensor([[ 0.5333, -0.1333],
                [-0.1333,  0.5333]])
    """
    check_symmetric("ridge_inverse", cov)
    weight = per_matrix("ridge_inverse", "ridge", ridge, cov, strict=True)
    flat = cov.reshape(-1, *cov.shape[-2:])
    return cast(Tensor, _RidgeInverse.apply(add_diagonal(_unit_mean(flat), weight), _detached(weight))).reshape(
        cov.shape
    )


@full_precision
def shrink(cov: Tensor, ridge: float | Tensor) -> Tensor:
    """Σ + r·μI with μ = tr Σ/D, the mean eigenvalue.

    Args:
        cov: Covariance matrices (..., D, D).
        ridge: r > 0: a number, or a tensor of one value per matrix.

    Example:
        >>> shrink(torch.eye(2), 0.5)
        tensor([[1.5000, 0.0000],
                [0.0000, 1.5000]])
    """
    check_symmetric("shrink", cov)
    weight = per_matrix("shrink", "ridge", ridge, cov, strict=True)
    flat = cov.reshape(-1, *cov.shape[-2:])
    return add_diagonal(flat, trace(flat) * weight / cov.shape[-1]).reshape(cov.shape)


def saturate_reference(cov: Tensor, ridge: float, kind: SaturatingMap = "ratio", power: float = 1.0) -> Tensor:
    """Compute :func:`saturate` by eigh; gradients are wrong for repeated eigenvalues."""
    D = cov.shape[-1]
    values, vectors = torch.linalg.eigh(cov * D / cov.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None])
    values = values**power
    if power != 1.0:
        values = values * (D / values.sum(-1, keepdim=True))
    mapped = values / (values + ridge) if kind == "ratio" else torch.log1p(values / ridge)
    return cast(Tensor, (vectors * mapped.unsqueeze(-2)) @ vectors.mT)


@full_precision
def saturate(cov: Tensor, ridge: float | Tensor, *, kind: SaturatingMap = "ratio", power: float = 1.0) -> Tensor:
    """Apply a saturating function to the eigenvalues x of D·Σ' = D·Σ/tr Σ.

    Args:
        cov: Covariance matrices (..., D, D).
        ridge: r > 0, where saturation begins: a number, or a tensor of one value per matrix.
        kind: ``"ratio"`` is x/(x + r), by an inverse; ``"log"`` is log(1 + x/r), by eigh.
        power: Takes Σ^power first, and gives it the mean eigenvalue one again. ½ is computed by
            five Newton–Schulz steps, other powers by an eigendecomposition.

    Example:
        >>> saturate(torch.eye(2), 1.0)
        tensor([[0.5000, 0.0000],
                [0.0000, 0.5000]])
    """
    check_symmetric("saturate", cov)
    check_choice("saturate", "kind", kind, ("ratio", "log"))
    check_number("saturate", "power", power, strict=True)
    weight = per_matrix("saturate", "ridge", ridge, cov, strict=True)
    sigma = _unit_mean(cov.reshape(-1, *cov.shape[-2:]))
    if power == 0.5:
        sigma = _unit_mean(newton_schulz_sqrt(sigma, n_iter=_SQRT_STEPS))
    elif power != 1.0:
        sigma = _unit_mean(matrix_power(sigma, power))
    shifted = add_diagonal(sigma, weight)
    if kind == "ratio":
        out = add_diagonal(-weight * _RidgeInverse.apply(shifted, _detached(weight)), 1.0)
    else:
        log_weight = weight.log() if isinstance(weight, Tensor) else torch.tensor(weight, dtype=cov.dtype).log().item()
        out = add_diagonal(matrix_log(shifted), -log_weight)
    return out.reshape(cov.shape)
