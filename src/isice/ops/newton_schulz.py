"""⑤ Σ^½, Σ^-½ and Σ⁻¹ by the Newton–Schulz iteration (paper, Alg. 1; iSQRT-COV).

The textbook iteration on A = Σ/tr Σ is P = ½(3I − ZY), Y ← YP, Z ← PZ from Y = A, Z = I; then Y →
A^½ and Z → A^-½. All iterates are polynomials in A, so they commute, and T = ZY obeys T ← TP². The
results are products of the factors: Y = A∏P, Z = ∏P and Z² = ∏P². Two steps are fused: the product
of their P is a polynomial of degree four in T, computed by two products. This takes five products
for two steps instead of the six of Alg. 1.

A polynomial of a symmetric matrix has a self-adjoint derivative. The backward pass is therefore the
forward-mode derivative in the direction of the symmetric cotangent. It needs no saved iterate.
"""

from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor

from .._checks import check_int, check_symmetric
from ._autograd import FusedNewtonSchulz
from ._dispatch import Backend, use_kernels
from ._linalg import add_diagonal_, normalize_trace, out_of_place, plus_transpose, symmetric
from ._numerics import full_precision
from .vectorize import unvectorize, vectorize

Kind = Literal["sqrt", "inverse_sqrt", "inverse"]
_TRACE_POWER: dict[str, float] = {"sqrt": 0.5, "inverse_sqrt": -0.5, "inverse": -1.0}
# The same powers as functions, faster than pow.
_TRACE_FACTOR = {"sqrt": torch.sqrt, "inverse_sqrt": torch.rsqrt, "inverse": torch.reciprocal}


def newton_schulz_reference(cov: Tensor, n_iter: int, kind: Kind) -> Tensor:
    """Run Alg. 1 as printed, by autograd, on matrices of positive trace; the oracle."""
    total = cov.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    eye = torch.eye(cov.shape[-1], dtype=cov.dtype, device=cov.device)
    y, z = cov / total, eye.expand_as(cov)
    for _ in range(n_iter):
        p = 0.5 * (3 * eye - z @ y)
        y, z = y @ p, p @ z
    root = {"sqrt": y, "inverse_sqrt": z, "inverse": z @ z.mT}[kind]
    return root * total ** _TRACE_POWER[kind]


def _half_step(t: Tensor) -> Tensor:
    """Return P = ½(3I − T)."""
    return add_diagonal_(-0.5 * t, 1.5)


class _Diagonals(NamedTuple):
    """Scalars for the diagonals of P², U and Z, as tensors to convert them only once."""

    square: Tensor
    u: Tensor
    z: Tensor


def _diagonals(like: Tensor) -> _Diagonals:
    return _Diagonals(like.new_full((), 2.25), like.new_full((), 3.375), like.new_full((), 24.609375 / 16))


def _full_step(t: Tensor, add: _Diagonals) -> Tensor:
    """Return P² = (3I − T)²/4 = 9/4 I − 3/2 T + T²/4, which is more accurate than P times P."""
    return add_diagonal_(torch.baddbmm(t, t, t, beta=-1.5, alpha=0.25), add.square)


def _two_steps(t: Tensor, add: _Diagonals) -> tuple[Tensor, Tensor]:
    """Return U = T² − 4.5T + 3.375I and the two-step factor (U² − 8.625T + 24.609375I)/16."""
    u = add_diagonal_(torch.baddbmm(t, t, t, beta=-4.5), add.u)
    return u, add_diagonal_(torch.baddbmm(t, u, u, beta=-8.625 / 16, alpha=1 / 16), add.z)


def _times(result: Tensor | None, factor: Tensor) -> Tensor:
    """Multiply the product so far, None before the first factor, by the next factor."""
    return factor if result is None else torch.bmm(result, factor)


def factor_product(t: Tensor, n_iter: int, kind: Kind) -> Tensor:
    """Return the product of the factors for trace-one matrices T (B, D, D)."""
    result, add = t if kind == "sqrt" else None, _diagonals(t)
    for steps_left in range(n_iter - 2, -1, -2):
        _, z = _two_steps(t, add)
        square = torch.bmm(z, z) if steps_left or kind == "inverse" else z
        result = _times(result, square if kind == "inverse" else z)
        if not steps_left:
            return result
        t = torch.bmm(t, square)
    return _times(result, _full_step(t, add) if kind == "inverse" else _half_step(t))


def _times_derivative(
    result: Tensor | None, d_result: Tensor, factor: Tensor, d_factor: Tensor, scalar: float
) -> Tensor:
    """Return the derivative of :func:`_times` if that of the factor is ``scalar·d_factor``."""
    if result is None:
        return scalar * d_factor
    return torch.bmm(d_result, factor).baddbmm_(result, d_factor, alpha=scalar)


def factor_product_derivative(t: Tensor, dt: Tensor, n_iter: int, kind: Kind) -> Tensor:
    """Return the derivative of :func:`factor_product` in the symmetric direction ``dt``.

    Together with the iterates it takes twelve products for two steps. The derivative of a square A²
    is X + Xᵀ with X = A dA, one product. Scalar factors are fused into the products.
    """
    result, d_result, add = t if kind == "sqrt" else None, dt, _diagonals(t)
    for steps_left in range(n_iter - 2, -1, -2):
        u, z = _two_steps(t, add)
        du = plus_transpose(torch.baddbmm(dt, t, dt, beta=-2.25))
        dz = plus_transpose(torch.baddbmm(dt, u, du, beta=-8.625 / 2))  # 16 dZ
        square, d_square = z, dz
        if steps_left or kind == "inverse":
            square, d_square = torch.bmm(z, z), plus_transpose(torch.bmm(z, dz))
        factor, d_factor = (square, d_square) if kind == "inverse" else (z, dz)
        d_result = _times_derivative(result, d_result, factor, d_factor, 1 / 16)
        if not steps_left:
            return d_result
        result = _times(result, factor)
        dt = _times_derivative(t, dt, square, d_square, 1 / 16)
        t = torch.bmm(t, square)
    if kind == "inverse":
        d_square = plus_transpose(torch.baddbmm(dt, t, dt, beta=-3))
        return _times_derivative(result, d_result, _full_step(t, add), d_square, 0.25)
    return _times_derivative(result, d_result, _half_step(t), dt, -0.5)


def newton_schulz_value(cov: Tensor, n_iter: int, kind: Kind, *, shift: float = 0.0, exact: bool = True) -> Tensor:
    """Run the iteration on Σ + ``shift``·I (B, D, D) outside autograd.

    Without ``exact`` the output is symmetric only up to rounding, which saves a pass over memory.
    """
    matrix, scale, _ = normalize_trace(cov, shift)
    product = factor_product(matrix, n_iter, kind)
    return (symmetric(product) if exact else product).mul_(_TRACE_FACTOR[kind](scale))


def newton_schulz_vjp(
    cov: Tensor, out: Tensor, grad: Tensor, n_iter: int, kind: Kind, *, shift: float = 0.0, exact: bool = True
) -> Tensor:
    """Return the cotangent of ``cov`` for the symmetric cotangent ``grad`` of the output."""
    matrix, scale, has_variance = normalize_trace(cov, shift)
    inside = factor_product_derivative(matrix, grad * _TRACE_FACTOR[kind](scale), n_iter, kind)
    moment = torch.addcmul(inside * matrix, grad, out, value=-_TRACE_POWER[kind]).sum(dim=(-2, -1), keepdim=True)
    inverse = scale.reciprocal()
    result = add_diagonal_(inside * inverse, -(moment * has_variance * inverse))
    return symmetric(result) if exact else result


def differentiable_vjp(cov: Tensor, grad: Tensor, n_iter: int, kind: Kind, vectorized: bool) -> Tensor:
    """Run the backward pass of the kernels in differentiable operations."""
    if vectorized:
        # An off-diagonal entry of the vector stands for two entries of the matrix.
        matrix = unvectorize(grad)
        grad = 0.5 * (matrix + matrix * torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device))
    out = _NewtonSchulz.apply(cov, n_iter, kind)
    with torch.autocast(cov.device.type, enabled=False):
        return newton_schulz_vjp(cov, out, symmetric(grad), n_iter, kind)


class _NewtonSchulz(torch.autograd.Function):
    """The iteration on (B, D, D); saves input and output. The backward is differentiable."""

    generate_vmap_rule = True

    @staticmethod
    def forward(cov: Tensor, n_iter: int, kind: Kind) -> Tensor:
        return out_of_place(newton_schulz_value(cov, n_iter, kind))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int, Kind], output: Tensor) -> None:
        cov, ctx.n_iter, ctx.kind = inputs
        ctx.save_for_backward(cov, output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (cov, out), grad = ctx.saved_tensors, symmetric(grads[0])
        with torch.autocast(cov.device.type, enabled=False):
            return newton_schulz_vjp(cov, out, grad, ctx.n_iter, ctx.kind), None, None


def _newton_schulz(cov: Tensor, n_iter: int, kind: Kind, vectorized: bool, backend: Backend | None) -> Tensor:
    who = f"newton_schulz_{kind}"
    check_symmetric(who, cov)
    check_int(who, "n_iter", n_iter, minimum=1)
    matrices = cov.reshape(-1, *cov.shape[-2:])
    trivial = "its single step has no matrix product" if kind == "inverse_sqrt" and n_iter == 1 else ""
    if use_kernels(who, backend, cov, n_iter, trivial):
        out = FusedNewtonSchulz.apply(matrices, n_iter, kind, vectorized)
        return cast(Tensor, out.reshape(*cov.shape[:-2], *out.shape[1:]))
    out = _NewtonSchulz.apply(matrices, n_iter, kind).reshape(cov.shape)
    return vectorize(out) if vectorized else out


@full_precision
def newton_schulz_sqrt(
    cov: Tensor, *, n_iter: int = 5, vectorized: bool = False, backend: Backend | None = None
) -> Tensor:
    """Compute the matrix square root Σ^½ by Newton–Schulz: √(tr Σ)·Y, the iSQRT-COV representation.

    Args:
        cov: Symmetric positive semi-definite matrices (..., D, D), zero ones too.
        n_iter: Newton–Schulz steps. Small eigenvalues need many: a step multiplies by at most 1.5.
        vectorized: Return upper triangles (..., D(D+1)/2) like :func:`vectorize`, faster on a GPU.
        backend: ``"torch"``, ``"triton"``, or ``"auto"`` for the GPU kernels where they apply.

    Example:
        >>> newton_schulz_sqrt(4 * torch.eye(2), n_iter=12)
        tensor([[2., 0.],
                [0., 2.]])
    """
    return _newton_schulz(cov, n_iter, "sqrt", vectorized, backend)


@full_precision
def newton_schulz_inverse_sqrt(
    cov: Tensor, *, n_iter: int = 5, vectorized: bool = False, backend: Backend | None = None
) -> Tensor:
    """Compute the inverse square root Σ^-½ by Newton–Schulz: Z/√(tr Σ).

    Arguments as in :func:`newton_schulz_sqrt`.

    Example:
        >>> newton_schulz_inverse_sqrt(4 * torch.eye(2), n_iter=12)
        tensor([[0.5000, 0.0000],
                [0.0000, 0.5000]])
    """
    return _newton_schulz(cov, n_iter, "inverse_sqrt", vectorized, backend)


@full_precision
def newton_schulz_inverse(
    cov: Tensor, *, n_iter: int = 7, vectorized: bool = False, backend: Backend | None = None
) -> Tensor:
    """Compute the inverse Σ⁻¹ by Newton–Schulz: ZZᵀ/tr Σ (paper, Alg. 1).

    Stopping early regularises a singular Σ: the eigenvalues of the result are at most 2.25ⁿ/tr Σ.
    In float32, more than about 20 steps on a singular matrix amplify rounding errors without bound.

    Args:
        cov: Symmetric positive semi-definite matrices (..., D, D), zero ones too.
        n_iter: Newton–Schulz steps n.
        vectorized, backend: As in :func:`newton_schulz_sqrt`.

    Example:
        >>> newton_schulz_inverse(4 * torch.eye(2), n_iter=12)
        tensor([[0.2500, 0.0000],
                [0.0000, 0.2500]])
    """
    return _newton_schulz(cov, n_iter, "inverse", vectorized, backend)
