"""⑤ iSICE: sparse inverse covariance by Newton–Schulz and projected gradient steps (paper, Alg. 2).

The start is S₀ = (Σ' + αI)⁻¹ with Σ' = Σ/tr Σ. Step i of N splits S into its positive and negative
parts S⁺ and S⁻. With G = ∇₁ − Σ', ∇₁ = (S + αI)⁻¹ and the decaying rate ηβ, where
β = 1 − (i − 1)/max(1, N − 1), it computes
S⁺ ← relu(S⁺ + ηβ(G − λ)), S⁻ ← relu(S⁻ − ηβ(G + λ)), S ← S⁺ − S⁻.
For N ≥ 2 the last step has β = 0 and is omitted.
"""

from collections import deque
from collections.abc import MutableSequence, Sequence
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor

from .._checks import check_choice, check_int, check_number, check_symmetric
from ._autograd import FusedISICE, first_derivative_only
from ._dispatch import Backend, use_kernels
from ._linalg import (
    add_diagonal_,
    inner,
    normalize_trace,
    normalize_trace_vjp,
    out_of_place,
    per_matrix,
    plus_transpose,
    symmetric,
    trace_scale,
)
from ._numerics import full_precision
from .newton_schulz import newton_schulz_reference, newton_schulz_value, newton_schulz_vjp
from .ridge import shrink
from .vectorize import unvectorize, vectorize

Normalize = Literal["sqrt_trace", "trace", "none"]
FirstGradient = Literal["inverse", "printed"]
# 256 KiB of float32 per intermediate. A step uses about eight of them, which fit in a core's L2
# cache.
_CACHED_FLOATS = 2**16
OUTPUT_POWER = {"sqrt_trace": 0.5, "trace": 1.0, "none": 0.0}
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"normalize": "trace", "first_gradient": "inverse", "n_inverse_iter": 7},
    "official": {"normalize": "sqrt_trace", "first_gradient": "inverse", "n_inverse_iter": 7},
}


class ISICEOptions(NamedTuple):
    """Plain-valued options of Alg. 2."""

    n_iter: int
    n_inverse_iter: int
    normalize: str
    first_gradient: str
    alpha: float


def isice_options(
    who: str, n_iter: int, n_inverse_iter: int, normalize: str, first_gradient: str, alpha: float
) -> ISICEOptions:
    """Validate the plain-valued options of Alg. 2; ``who`` starts the error message."""
    check_int(who, "n_iter", n_iter, minimum=0)
    check_int(who, "n_inverse_iter", n_inverse_iter, minimum=1)
    check_choice(who, "normalize", normalize, OUTPUT_POWER)
    check_choice(who, "first_gradient", first_gradient, ("inverse", "printed"))
    check_number(who, "alpha", alpha)
    return ISICEOptions(n_iter, n_inverse_iter, normalize, first_gradient, alpha)


def preset_options(
    who: str,
    preset: str | None,
    n_inverse_iter: int | None,
    normalize: Normalize | None,
    first_gradient: FirstGradient | None,
) -> tuple[int, Normalize, FirstGradient]:
    """Return the options of a preset (default ``"official"``); others must not contradict it."""
    if preset is not None:
        check_choice(who, "preset", preset, PRESETS)
    values = dict(PRESETS[preset or "official"])
    given = {"n_inverse_iter": n_inverse_iter, "normalize": normalize, "first_gradient": first_gradient}
    for name, value in given.items():
        if preset is not None and value not in (None, values[name]):
            raise ValueError(
                f"{who}: expected {name}={values[name]!r} with preset={preset!r}, got {value!r}; leave one of them out."
            )
        values[name] = values[name] if value is None else value
    return values["n_inverse_iter"], values["normalize"], values["first_gradient"]


def decay(n_iter: int) -> list[float]:
    """Return β of every step except those with β = 0."""
    return [1 - i / max(1, n_iter - 1) for i in range(n_iter) if i == 0 or i < n_iter - 1]


def isice_reference(
    cov: Tensor,
    *,
    sparsity: float | Tensor = 0.01,
    step_size: float | Tensor = 1.0,
    n_iter: int = 5,
    n_inverse_iter: int = 7,
    normalize: Normalize = "sqrt_trace",
    first_gradient: FirstGradient = "inverse",
    alpha: float = 1e-9,
) -> Tensor:
    """Run all N steps of Alg. 2 as printed, by autograd; the oracle of :func:`isice`."""
    lam, eta = (v[..., None, None] if isinstance(v, Tensor) else v for v in (sparsity, step_size))
    eye = torch.eye(cov.shape[-1], dtype=cov.dtype, device=cov.device)
    sigma = cov / cov.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    s = newton_schulz_reference(sigma + alpha * eye, n_inverse_iter, "inverse")
    for i in range(n_iter):
        printed = first_gradient == "printed" and i == 0
        nabla = s if printed else newton_schulz_reference(s + alpha * eye, n_inverse_iter, "inverse")
        rate = eta * (1 - i / max(1, n_iter - 1))
        plus = torch.relu(torch.relu(s) - rate * (sigma - nabla + lam))
        minus = torch.relu(torch.relu(-s) - rate * (nabla - sigma + lam))
        s = 0.5 * ((plus - minus) + (plus - minus).mT)
    total = s.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    return s if normalize == "none" else s / total ** OUTPUT_POWER[normalize]


def update(s: Tensor, gradient: Tensor, rate: Tensor, lam: Tensor) -> tuple[Tensor, Tensor]:
    """Return the new S⁺ and S⁻ for G = ∇₁ − Σ', the rate ηβ and λ (Alg. 2, lines 5, 11, 12)."""
    plus = torch.relu(s) - rate * lam
    minus = plus - s  # relu(−s) = relu(s) − s
    return plus.addcmul_(rate, gradient).relu_(), minus.addcmul_(rate, gradient, value=-1).relu_()


def _sparse_step(s: Tensor, nabla: Tensor, sigma: Tensor, rate: Tensor, lam: Tensor) -> Tensor:
    """Return the next S for matrices (B, D, D) and per-image values (B, 1, 1)."""
    plus, minus = update(s, nabla - sigma, rate, lam)
    return plus.sub_(minus)


def _sparse_step_vjp(
    s: Tensor, nabla: Tensor, sigma: Tensor, rate: Tensor, lam: Tensor, grad: Tensor, learned: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the cotangents of S, G, ηβ and λ; zeros for ηβ and λ unless ``learned``."""
    gradient = nabla - sigma
    plus, minus = update(s, gradient, rate, lam)
    d_plus, d_minus = _where_positive(grad, plus), _where_positive(grad, minus)
    d_s = _where_positive(d_plus, s).add_(_where_positive(d_minus, -s))
    d_rate = d_lam = torch.zeros_like(rate)
    if learned:
        difference = (d_minus - d_plus).sum(dim=(-2, -1), keepdim=True)
        d_rate, d_lam = inner(d_plus + d_minus, gradient) + lam * difference, rate * difference
    return d_s, d_plus.add_(d_minus).mul_(rate), d_rate, d_lam


def _where_positive(value: Tensor, condition: Tensor) -> Tensor:
    """Return ``value`` where ``condition`` > 0, else 0.

    ReLU's backward kernel is faster on a CPU than a mask. torch.compile would save a mask in the
    forward pass, which on a CPU takes longer than a product. It gets an arithmetic form instead,
    equal for finite values.
    """
    if value.device.type == "cpu" and torch.compiler.is_compiling():
        return value * condition.relu().sign()
    return cast(Tensor, torch.ops.aten.threshold_backward(value, condition, 0))


def _output(s: Tensor, power: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return S/tr(S)^power, the trace, and whether there is variance."""
    total, has_variance = trace_scale(s)
    return plus_transpose(s).mul_(0.5 / total**power), total, has_variance


def _parts(cov: Tensor) -> list[slice]:
    """Split the batch so that a part's intermediates fit in a CPU's cache; else one part."""
    if cov.device.type != "cpu" or torch.compiler.is_compiling():
        return [slice(None)]
    length = max(1, _CACHED_FLOATS * torch.get_num_threads() // cov.shape[-1] ** 2)
    return [slice(begin, begin + length) for begin in range(0, max(1, len(cov)), length)]


def _join(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(tuple(parts))


def _isice_part(
    cov: Tensor, sparsity: Tensor, step_size: Tensor, options: ISICEOptions, kept: MutableSequence[Tensor]
) -> Tensor:
    sigma = normalize_trace(cov).matrix
    s = _inverse(sigma, options)
    kept.append(s)
    for i, beta in enumerate(decay(options.n_iter)):
        nabla = s if i == 0 and options.first_gradient == "printed" else _inverse(s, options)
        kept.append(nabla)
        s = _sparse_step(s, nabla, sigma, step_size * beta, sparsity)
    return _output(s, OUTPUT_POWER[options.normalize])[0]


def _isice_value(
    cov: Tensor, sparsity: Tensor, step_size: Tensor, options: ISICEOptions, kept: list[Tensor] | None = None
) -> Tensor:
    """Compute the output for (B, D, D); append S₀ and every ∇₁ of each part to ``kept``."""
    # Discard intermediates unless the backward pass needs them.
    keep: MutableSequence[Tensor] = deque(maxlen=0) if kept is None else kept
    return _join([_isice_part(cov[p], sparsity[p], step_size[p], options, keep) for p in _parts(cov)])


class _ISICE(torch.autograd.Function):
    """Alg. 2 on (B, D, D); returns and saves S₀ and every ∇₁, too. No second derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(cov: Tensor, sparsity: Tensor, step_size: Tensor, options: ISICEOptions) -> tuple[Tensor, ...]:
        kept: list[Tensor] = []
        return out_of_place(_isice_value(cov, sparsity, step_size, options, kept)), *kept

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, ctx.options = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.parts = _parts(tensors[0])
        ctx.save_for_backward(*tensors, *output[1:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        cov, lam, eta, *kept = ctx.saved_tensors
        n_kept, learned, cotangents = len(kept) // len(ctx.parts), any(ctx.needs_input_grad[1:3]), []
        with torch.no_grad(), torch.autocast(cov.device.type, enabled=False):
            for i, p in enumerate(ctx.parts):
                of_part = kept[i * n_kept : (i + 1) * n_kept]
                cotangents.append(_isice_vjp(cov[p], lam[p], eta[p], of_part, grads[0][p], ctx.options, learned))
            result = tuple(_join(parts) for parts in zip(*cotangents, strict=True))
        return (*first_derivative_only("isice", (grads[0], cov, lam, eta), result), None)


def _inverse(s: Tensor, options: ISICEOptions) -> Tensor:
    """Return (S + αI)⁻¹, symmetric up to rounding; the final result is symmetrised instead."""
    return newton_schulz_value(s, options.n_inverse_iter, "inverse", shift=options.alpha, exact=False)


def _inverse_vjp(s: Tensor, out: Tensor, grad: Tensor, options: ISICEOptions) -> Tensor:
    return newton_schulz_vjp(s, out, grad, options.n_inverse_iter, "inverse", shift=options.alpha, exact=False)


def _isice_vjp(
    cov: Tensor, lam: Tensor, eta: Tensor, kept: list[Tensor], grad: Tensor, options: ISICEOptions, learned: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the cotangents of Σ, λ and η from S₀ and ∇₁; zeros for λ and η unless ``learned``."""
    first, *inverses = kept
    normalized = normalize_trace(cov)
    sigma, betas, power = normalized.matrix, decay(options.n_iter), OUTPUT_POWER[options.normalize]
    precisions = [first]
    for beta, nabla in zip(betas, inverses, strict=True):
        precisions.append(_sparse_step(precisions[-1], nabla, sigma, eta * beta, lam))
    grad = symmetric(grad)
    out, total, has_variance = _output(precisions.pop(), power)
    d_s = add_diagonal_(grad / total**power, -power * inner(grad, out) * has_variance / total)
    d_sigma, d_lam, d_eta = torch.zeros_like(cov), torch.zeros_like(lam), torch.zeros_like(eta)
    for i in reversed(range(len(betas))):
        before, nabla = precisions.pop(), inverses[i]
        d_s, d_gradient, d_rate, d_step_lam = _sparse_step_vjp(before, nabla, sigma, eta * betas[i], lam, d_s, learned)
        if learned:
            d_eta, d_lam = d_eta + d_rate * betas[i], d_lam + d_step_lam
        d_sigma.sub_(d_gradient)
        printed = i == 0 and options.first_gradient == "printed"
        d_s.add_(d_gradient if printed else _inverse_vjp(before, nabla, d_gradient, options))
    d_sigma.add_(_inverse_vjp(sigma, first, d_s, options))
    return normalize_trace_vjp(normalized, symmetric(d_sigma)), d_lam, d_eta


def _per_image(name: str, value: float | Tensor, cov: Tensor) -> Tensor:
    """Return a number or per-image values as (B, 1, 1)."""
    checked = per_matrix("isice", name, value, cov)
    if isinstance(checked, Tensor):
        return checked
    return cov.new_full((*cov.shape[:-2], 1, 1), checked).reshape(-1, 1, 1)


@full_precision
def isice(
    cov: Tensor,
    *,
    sparsity: float | Tensor = 0.01,
    step_size: float | Tensor = 1.0,
    n_iter: int = 5,
    n_inverse_iter: int | None = None,
    normalize: Normalize | None = None,
    first_gradient: FirstGradient | None = None,
    alpha: float = 1e-9,
    ridge: float = 0.0,
    preset: Literal["paper", "official"] | None = None,
    vectorized: bool = False,
    backend: Backend | None = None,
) -> Tensor:
    """Estimate sparse inverse covariance matrices iteratively: iSICE (paper, Alg. 2).

    At the defaults the output is close to a rescaled regularised inverse and hardly sparse
    (docs/deviations.md). Use :func:`graphical_lasso` for the exact sparse solution. λ and η are
    numbers, or tensors with one value per matrix, which get gradients.

    Args:
        cov: Covariance matrices (..., D, D). A zero matrix is treated as I.
        sparsity: λ ≥ 0 for a covariance of trace one.
        step_size: η ≥ 0.
        n_iter: Gradient steps N. Zero gives the regularised inverse of Σ'.
        n_inverse_iter: Newton–Schulz steps N_s of each inverse; by default 7.
        normalize: Divide by √trace (published code, the default), by the trace (paper), or not.
        first_gradient: ∇₁ of the first step: ``"inverse"`` of S₀ (the default), or S₀ itself as
            ``"printed"`` in Alg. 2, a typo.
        alpha: α ≥ 0, added to the diagonal before every inverse.
        ridge: Apply Alg. 2 to Σ + ridge·μI, where μ is the mean eigenvalue of Σ. Positive values
            are an unpublished variant; from 1 on, ten inverse steps reach an error of 1 % for
            256 channels.
        preset: ``"paper"`` divides by the trace, ``"official"`` by √trace, as the default does.
            Both set ``n_inverse_iter=7`` and ``first_gradient="inverse"``; an option that
            contradicts the preset is an error.
        vectorized: Return upper triangles (..., D(D+1)/2) like :func:`vectorize`, faster on a GPU.
        backend: ``"torch"``, ``"triton"``, or ``"auto"`` for the GPU kernels where they apply.

    Returns:
        Symmetric matrices (..., D, D), or upper triangles; indefinite if step sizes are large.

    Example:
        >>> isice(torch.eye(3), n_iter=2).shape
        torch.Size([3, 3])
    """
    n_inverse_iter, normalize, first_gradient = preset_options(
        "isice", preset, n_inverse_iter, normalize, first_gradient
    )
    check_symmetric("isice", cov)
    options = isice_options("isice", n_iter, n_inverse_iter, normalize, first_gradient, alpha)
    lam, eta = _per_image("sparsity", sparsity, cov), _per_image("step_size", step_size, cov)
    check_number("isice", "ridge", ridge)
    cov = shrink(cov, ridge) if ridge else cov
    matrices = cov.reshape(-1, *cov.shape[-2:])
    torch_only = "first_gradient='printed' is computed by PyTorch" if first_gradient == "printed" else ""
    if use_kernels("isice", backend, cov, n_inverse_iter, torch_only):
        settings = (decay(n_iter), n_inverse_iter, OUTPUT_POWER[normalize], alpha)
        vector = FusedISICE.apply(matrices, lam.flatten(), eta.flatten(), settings)
        vector = vector.reshape(*cov.shape[:-2], vector.shape[-1])
        return vector if vectorized else unvectorize(vector)
    arguments = matrices.contiguous(), lam, eta, options
    out = cast(Tensor, _ISICE.apply(*arguments)[0] if torch.is_grad_enabled() else _isice_value(*arguments))
    out = out.reshape(cov.shape)
    return vectorize(out) if vectorized else out
