"""⑤ Σ^½, Σ^-½ and Σ⁻¹ by the Newton–Schulz iteration (paper, Alg. 1; iSQRT-COV).

The textbook iteration on A = Σ/tr Σ is P = ½(3I − ZY), Y ← YP, Z ← PZ from Y = A, Z = I; then Y → A^½ and Z → A^-½.
All iterates are polynomials in A, so they commute and T = ZY obeys T ← TP² on its own. The results are products of
the factors: Y = A∏P, Z = ∏P and Z² = ∏P², one product a step less than Alg. 1, and a perturbation of T dies out.

A polynomial of a symmetric matrix has a self-adjoint derivative. The backward pass is therefore the forward-mode
derivative in the direction of the symmetric cotangent: it needs the input and the output, and no saved iterate.
"""

from typing import Any, Literal

import torch
from torch import Tensor

from .._checks import check_int, check_symmetric
from ._dispatch import Backend, kernel_precision, use_kernels
from ._precision import full_precision
from ._trace import add_diagonal, add_diagonal_, inner, normalize_trace

Kind = Literal["sqrt", "inverse_sqrt", "inverse"]
_TRACE_POWER: dict[str, float] = {"sqrt": 0.5, "inverse_sqrt": -0.5, "inverse": -1.0}


def newton_schulz_reference(cov: Tensor, n_iter: int, kind: Kind) -> Tensor:
    """Alg. 1 as printed, by autograd; the oracle of this file. Matrices need a positive trace."""
    total = cov.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    eye = torch.eye(cov.shape[-1], dtype=cov.dtype, device=cov.device)
    y, z = cov / total, eye.expand_as(cov)
    for _ in range(n_iter):
        p = 0.5 * (3 * eye - z @ y)
        y, z = y @ p, p @ z
    root = {"sqrt": y, "inverse_sqrt": z, "inverse": z @ z.mT}[kind]
    return root * total ** _TRACE_POWER[kind]


def _half_step(t: Tensor) -> Tensor:
    """P = ½(3I − T)."""
    return add_diagonal_(-0.5 * t, 1.5)


def _full_step(t: Tensor) -> Tensor:
    """P² = (3I − T)²/4 = 9/4 I − 3/2 T + T²/4: one product."""
    return add_diagonal_(torch.baddbmm(t, t, t, beta=-1.5, alpha=0.25), 2.25)


def _full_step_derivative(t: Tensor, dt: Tensor) -> tuple[Tensor, Tensor]:
    """P² and its derivative in the symmetric direction ``dt``: two products."""
    tdt = t @ dt
    return _full_step(t), 0.25 * (tdt + tdt.mT) - 1.5 * dt


def _symmetric(matrix: Tensor) -> Tensor:
    return 0.5 * (matrix + matrix.mT)


def factor_product(t: Tensor, n_iter: int, kind: Kind) -> Tensor:
    """The product of the factors for trace-one matrices (B, D, D): 3n − 2 matrix products for the inverse."""
    result = t
    for step in range(n_iter):
        first, last = step == 0, step == n_iter - 1
        square = t if last and kind != "inverse" else _full_step(t)
        factor = square if kind == "inverse" else _half_step(t)
        result = factor if first and kind != "sqrt" else result @ factor
        if not last:
            t = t @ square
    return result


def factor_product_derivative(t: Tensor, dt: Tensor, n_iter: int, kind: Kind) -> Tensor:
    """The derivative of :func:`factor_product` in the symmetric direction ``dt``: 8n − 7 products with the iterates."""
    result, d_result = t, dt
    for step in range(n_iter):
        first, last = step == 0, step == n_iter - 1
        square, d_square = (t, dt) if last and kind != "inverse" else _full_step_derivative(t, dt)
        factor, d_factor = (square, d_square) if kind == "inverse" else (_half_step(t), -0.5 * dt)
        if first and kind != "sqrt":
            result, d_result = factor, d_factor
        else:
            d_result = torch.baddbmm(result @ d_factor, d_result, factor)
            result = result if last else result @ factor
        if not last:
            dt = torch.baddbmm(t @ d_square, dt, square)
            t = t @ square
    return d_result


@torch.library.custom_op("isice::newton_schulz", mutates_args=())
def _fused(matrices: list[Tensor], n_iter: int, kind: str, precision: str) -> Tensor:
    """The product of the factors of one matrix (B, D, D), or its derivative when a direction comes with it."""
    from ..kernels import newton_schulz

    return newton_schulz.run(matrices, n_iter, kind, precision)


@_fused.register_fake
def _(matrices: list[Tensor], n_iter: int, kind: str, precision: str) -> Tensor:
    return torch.empty_like(matrices[0])


def newton_schulz_value(cov: Tensor, n_iter: int, kind: Kind, kernels: bool = False) -> Tensor:
    """The iteration on (B, D, D) without autograd bookkeeping; exactly symmetric output."""
    matrix, scale, _ = normalize_trace(cov)
    product = (
        _fused([matrix], n_iter, kind, kernel_precision())
        if kernels
        else _symmetric(factor_product(matrix, n_iter, kind))
    )
    return product * scale ** _TRACE_POWER[kind]


def newton_schulz_vjp(cov: Tensor, out: Tensor, grad: Tensor, n_iter: int, kind: Kind, kernels: bool = False) -> Tensor:
    """The cotangent of ``cov`` for the cotangent ``grad`` of ``out = newton_schulz_value(cov)``; symmetric matrices."""
    matrix, scale, alive = normalize_trace(cov)
    power = _TRACE_POWER[kind]
    direction = grad * scale**power
    if kernels:
        inside = _fused([matrix, direction], n_iter, kind, kernel_precision())
    else:
        inside = factor_product_derivative(matrix, direction, n_iter, kind)
    along_trace = (power * inner(grad, out) - inner(inside, matrix)) * alive
    return _symmetric(add_diagonal(inside, along_trace)) / scale


class _NewtonSchulz(torch.autograd.Function):
    """Saves input and output only; the backward pass is made of differentiable operations, so it differentiates too."""

    @staticmethod
    def forward(ctx: Any, cov: Tensor, n_iter: int, kind: Kind, kernels: bool) -> Tensor:
        out = newton_schulz_value(cov, n_iter, kind, kernels)
        ctx.save_for_backward(cov, out)
        ctx.n_iter, ctx.kind, ctx.kernels = n_iter, kind, kernels
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (cov, out), grad = ctx.saved_tensors, _symmetric(grads[0])
        # Kernels have no derivative of their own: under create_graph=True the operations of PyTorch take their place.
        kernels = ctx.kernels and (torch.compiler.is_compiling() or not torch.is_grad_enabled())
        with torch.autocast(cov.device.type, enabled=False):
            return newton_schulz_vjp(cov, out, grad, ctx.n_iter, ctx.kind, kernels), None, None, None


def _newton_schulz(cov: Tensor, n_iter: int, kind: Kind, backend: Backend | None) -> Tensor:
    who = f"newton_schulz_{kind}"
    check_symmetric(who, cov)
    check_int(who, "n_iter", n_iter, minimum=1)
    kernels = use_kernels(who, backend, cov)
    return _NewtonSchulz.apply(cov.reshape(-1, *cov.shape[-2:]), n_iter, kind, kernels).reshape(cov.shape)


@full_precision
def newton_schulz_sqrt(cov: Tensor, n_iter: int = 5, *, backend: Backend | None = None) -> Tensor:
    """Matrix square root Σ^½ by Newton–Schulz: √(tr Σ)·Y, the iSQRT-COV representation.

    Args:
        cov: Symmetric positive semi-definite matrices (..., D, D). Zero matrices give finite output.
        n_iter: Steps. Small eigenvalues need many: each step multiplies them by at most 1.5.
        backend: ``"torch"``, ``"triton"``, or ``"auto"`` for the GPU kernels where they apply.

    Example:
        >>> newton_schulz_sqrt(4 * torch.eye(2), n_iter=12)
        tensor([[2., 0.],
                [0., 2.]])
    """
    return _newton_schulz(cov, n_iter, "sqrt", backend)


@full_precision
def newton_schulz_inverse_sqrt(cov: Tensor, n_iter: int = 5, *, backend: Backend | None = None) -> Tensor:
    """Inverse square root Σ^-½ by Newton–Schulz: Z/√(tr Σ). Arguments as in :func:`newton_schulz_sqrt`.

    Example:
        >>> newton_schulz_inverse_sqrt(4 * torch.eye(2), n_iter=12)
        tensor([[0.5000, 0.0000],
                [0.0000, 0.5000]])
    """
    return _newton_schulz(cov, n_iter, "inverse_sqrt", backend)


@full_precision
def newton_schulz_inverse(cov: Tensor, n_iter: int = 7, *, backend: Backend | None = None) -> Tensor:
    """Inverse Σ⁻¹ by Newton–Schulz: ZZᵀ/tr Σ (paper, Alg. 1).

    The iteration stops early on purpose: eigenvalues of the result are capped at 2.25ⁿ/tr Σ, which regularises a
    singular Σ. In float32, more than about 20 steps on a singular matrix amplify rounding errors without bound.

    Args:
        cov: Symmetric positive semi-definite matrices (..., D, D). Zero matrices give finite output.
        n_iter: Steps.
        backend: As in :func:`newton_schulz_sqrt`.

    Example:
        >>> newton_schulz_inverse(4 * torch.eye(2), n_iter=12)
        tensor([[0.2500, 0.0000],
                [0.0000, 0.2500]])
    """
    return _newton_schulz(cov, n_iter, "inverse", backend)
