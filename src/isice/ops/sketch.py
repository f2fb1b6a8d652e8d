"""⑤ Random features of polynomial kernels: count sketch, tensor sketch, random Maclaurin.

They approximate the C² (or Cᵖ) products of channels by ``n_out`` random combinations. Order two is
a linear map of the matrix Σ_t x_t x_tᵀ and is computed from it where that is cheaper. Otherwise
positions are processed in chunks, and recomputed in the backward pass.
"""

from functools import reduce
from typing import Any, cast

import torch
from torch import Tensor

from .._checks import check_feature_set, check_int
from ._numerics import InputsSaved, full_precision
from .second_moment import second_moment

# Elements per image of the largest intermediate of a chunk: a trade-off of speed and memory.
_CHUNK_ELEMENTS = 2**19


def _generator(seed: int) -> torch.Generator:
    return torch.Generator(device="cpu").manual_seed(seed)


def _signs(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    signs = torch.randint(2, shape, generator=generator, device="cpu") * 2 - 1
    return signs.to(device=torch.get_default_device(), dtype=torch.get_default_dtype())


def random_signs(shape: tuple[int, ...], seed: int) -> Tensor:
    """Return independent signs ±1 determined by ``seed``; the global generator is not used.

    Example:
        >>> torch.equal(random_signs((2, 31, 8), seed=0), random_signs((2, 31, 8), seed=0))
        True
    """
    return _signs(shape, _generator(seed))


def random_normal(shape: tuple[int, ...], seed: int) -> Tensor:
    """Return independent standard normal entries determined by ``shape`` and ``seed``.

    Example:
        >>> torch.equal(random_normal((4,), seed=0), random_normal((4,), seed=0))
        True
    """
    normal = torch.randn(shape, generator=_generator(seed), device="cpu")
    return normal.to(torch.get_default_device())


def random_hashes(n_sketches: int, in_channels: int, n_out: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return buckets in [0, n_out) and signs ±1, both (n_sketches, in_channels), of random hashes.

    Example:
        >>> index, sign = random_hashes(2, in_channels=8, n_out=31, seed=0)
        >>> index.shape, sign.shape
        (torch.Size([2, 8]), torch.Size([2, 8]))
    """
    generator = _generator(seed)
    index = torch.randint(n_out, (n_sketches, in_channels), generator=generator, device="cpu")
    return index.to(torch.get_default_device()), _signs((n_sketches, in_channels), generator)


@full_precision
def count_sketch(x: Tensor, index: Tensor, sign: Tensor, n_out: int) -> Tensor:
    """Compute the count sketch ψ(x)_k = Σ sign(i)·x_i over index(i) = k: (..., C) → (..., n_out).

    ``index`` and ``sign`` (C,) are one hash. On a GPU the order of summation is not fixed, so
    results may differ by rounding unless ``torch.use_deterministic_algorithms(True)`` is set.

    Example:
        >>> x, index = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 3, 0])
        >>> count_sketch(x, index, torch.tensor([1.0, 1.0, -1.0]), 4)
        tensor([-2.,  0.,  0.,  2.])
    """
    if index.ndim != 1 or x.shape[-1:] != index.shape:
        raise ValueError(
            f"count_sketch: expected features (..., C) and a hash (C,), got {tuple(x.shape)} and {tuple(index.shape)}."
        )
    return x.new_zeros((*x.shape[:-1], n_out)).index_add(-1, index, x * sign.to(x.dtype))


def _chunks(x: Tensor, n_out: int) -> tuple[Tensor, ...]:
    return torch.split(x, max(1, _CHUNK_ELEMENTS // n_out), dim=-1)


def _spectra(x: Tensor, index: Tensor, sign: Tensor, n_out: int) -> list[Tensor]:
    hashes = zip(index.unbind(), sign.unbind(), strict=True)
    return [torch.fft.rfft(count_sketch(x.mT, i, s, n_out)) for i, s in hashes]  # each (..., N, n_out // 2 + 1)


def _running_products(factors: list[Tensor]) -> list[Tensor]:
    products = factors[:1]
    for factor in factors[1:]:
        products.append(products[-1] * factor)
    return products


def tensor_sketches_reference(x: Tensor, index: Tensor, sign: Tensor, n_out: int) -> Tensor:
    """Transform all positions at once, by autograd; the oracle of :func:`tensor_sketches`."""
    products = _running_products(_spectra(x, index, sign, n_out))[1:]
    return torch.stack([torch.fft.irfft(product, n=n_out).sum(dim=-2) for product in products], dim=-2)


class _TensorSketches(InputsSaved):
    """Sum of spectra over positions, then one inverse transform.

    A product of spectra is a circular convolution of real sequences. Its gradient is a correlation:
    the spectrum of the incoming gradient times the conjugates of the other factors.
    """

    @staticmethod
    def forward(x: Tensor, index: Tensor, sign: Tensor, n_out: int) -> Tensor:
        total: Any = 0
        for step in _chunks(x, n_out):
            products = _running_products(_spectra(step, index, sign, n_out))[1:]
            total = total + torch.stack([product.sum(dim=-2) for product in products], dim=-2)
        return cast(Tensor, torch.fft.irfft(total, n=n_out))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (x, index, sign), (n_out,) = ctx.saved_tensors, ctx.options
        spectra = torch.fft.rfft(grads[0]).unsqueeze(-2).unbind(-3)  # one (..., 1, K) for each order from 2 on
        steps = [_tensor_sketches_grad(step, index, sign, n_out, spectra) for step in _chunks(x, n_out)]
        return torch.cat(steps, dim=-1), None, None, None


def _tensor_sketches_grad(x: Tensor, index: Tensor, sign: Tensor, n_out: int, grads: tuple[Tensor, ...]) -> Tensor:
    """Return the gradient at the positions ``x``, highest order first to share transforms."""
    factors = _spectra(x, index, sign, n_out)
    products = _running_products(factors[:-1])
    carry, total = grads[-1], torch.zeros_like(x)
    for order in range(len(factors) - 1, -1, -1):
        spectrum = products[order - 1].conj() * carry if order else carry
        gathered = torch.fft.irfft(spectrum, n=n_out).index_select(-1, index[order])
        total = total + (gathered * sign[order].to(x.dtype)).mT
        carry = factors[order].conj() * carry
        if order >= 2:
            carry = carry + grads[order - 2]
    return total


def _moment_sum(x: Tensor) -> Tensor:
    return second_moment(x) * x.shape[-1]  # Σ_t x_t x_tᵀ


def _sketch_of_matrix(matrix: Tensor, index: Tensor, sign: Tensor, n_out: int) -> Tensor:
    """Sketch Σ_t x_t x_tᵀ (B, C, C): entry (i, j) is added to bucket h₁(i) + h₂(j)."""
    bucket = (index[0].unsqueeze(1) + index[1]) % n_out
    signs = sign[0].unsqueeze(1) * sign[1]
    return count_sketch(matrix.flatten(1), bucket.flatten(), signs.flatten(), n_out)


@full_precision
def tensor_sketches(x: Tensor, index: Tensor, sign: Tensor, n_out: int) -> Tensor:
    """Compute tensor sketches of all orders 2…p: (..., C, N) → (..., p − 1, n_out).

    Order i is Σ_t IFFT(∏_{j≤i} FFT ψ_j(x_t)). It reuses the transforms of order i − 1, and the
    inverse transform follows the sum over positions. ``index`` and ``sign`` (p, C) are p
    independent hashes from :func:`random_hashes`.

    Example:
        >>> index, sign = random_hashes(3, in_channels=8, n_out=31, seed=0)
        >>> tensor_sketches(torch.rand(2, 8, 49), index, sign, 31).shape
        torch.Size([2, 2, 31])
    """
    check_int("tensor_sketches", "n_out", n_out, minimum=1)
    _check_projections("tensor_sketches", "hashes (p, C)", x, index)
    if index.shape[0] < 2:
        raise ValueError(f"tensor_sketches: expected at least 2 hashes, got {index.shape[0]}; use count_sketch().")
    if x.shape[0] == 0:  # MKL in some torch releases rejects an empty transform
        return x.new_zeros((0, index.shape[0] - 1, n_out)) + x.sum()
    _, n_channels, n_positions = x.shape
    if index.shape[0] == 2 and n_channels**2 <= n_positions * n_out:  # fewer entries than the sketches of all positions
        return _sketch_of_matrix(_moment_sum(x), index, sign, n_out).unsqueeze(-2)
    return cast(Tensor, _TensorSketches.apply(x, index, sign, n_out))


def tensor_sketch(x: Tensor, index: Tensor, sign: Tensor, n_out: int) -> Tensor:
    """Compute the tensor sketch of the highest order, (..., C, N) → (..., n_out).

    Order 2 is compact bilinear pooling. With p hashes ⟨φ(x), φ(y)⟩ is an unbiased estimate of ⟨x,
    y⟩ᵖ (Pham & Pagh 2013).

    Example:
        >>> index, sign = random_hashes(2, in_channels=8, n_out=31, seed=0)
        >>> tensor_sketch(torch.rand(2, 8, 49), index, sign, 31).shape
        torch.Size([2, 31])
    """
    return tensor_sketches(x, index, sign, n_out)[..., -1, :]


def random_maclaurin_reference(x: Tensor, weights: Tensor) -> Tensor:
    """Project all positions at once, by autograd; the oracle of :func:`random_maclaurin`."""
    products: Tensor = reduce(torch.mul, [weight @ x for weight in weights])
    return products.sum(dim=-1)


class _RandomMaclaurin(InputsSaved):
    """Sum over chunks of positions; the gradient of a factor multiplies the other factors."""

    @staticmethod
    def forward(x: Tensor, weights: Tensor) -> Tensor:
        return cast(Tensor, sum(random_maclaurin_reference(step, weights) for step in _chunks(x, weights.shape[1])))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None]:
        (x, weights), weights_grad, steps = ctx.saved_tensors, None, []
        with torch.autocast(x.device.type, enabled=False):
            for step in _chunks(x, weights.shape[1]):
                factors = [weight @ step for weight in weights]
                grad = grads[0].unsqueeze(-1).expand_as(factors[0])
                outer = [reduce(torch.mul, factors[:s] + factors[s + 1 :], grad) for s in range(len(factors))]
                steps.append(sum(weight.mT @ g for weight, g in zip(weights, outer, strict=True)))
                if ctx.needs_input_grad[1]:
                    more = torch.stack([torch.einsum("bdn,bcn->dc", g, step) for g in outer])
                    weights_grad = more if weights_grad is None else weights_grad + more
        return torch.cat(steps, dim=-1), weights_grad


class _BilinearForms(InputsSaved):
    """Forms w₁ᵀ M w₂ of matrices M (B, C, C) for pairs of weights, by chunks of columns of M."""

    @staticmethod
    def forward(matrix: Tensor, weights: Tensor) -> Tensor:
        left, n_out = weights[0], weights.shape[1]
        columns = zip(_chunks(matrix, n_out), _chunks(weights[1], n_out), strict=True)
        return cast(Tensor, sum(((left @ m) * right).sum(dim=-1) for m, right in columns))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None]:
        matrix, weights = ctx.saved_tensors
        left, n_out, grad = weights[0], weights.shape[1], grads[0].unsqueeze(-1)
        matrix_grads, left_grads, right_grads = [], [], []
        with torch.autocast(matrix.device.type, enabled=False):
            for m, right in zip(_chunks(matrix, n_out), _chunks(weights[1], n_out), strict=True):
                outer = grad * right  # (B, n_out, columns)
                matrix_grads.append(left.mT @ outer)
                if ctx.needs_input_grad[1]:
                    left_grads.append(torch.einsum("bdn,bcn->dc", outer, m))
                    right_grads.append((grad * (left @ m)).sum(dim=0))
        if not left_grads:
            return torch.cat(matrix_grads, dim=-1), None
        left_grad = cast(Tensor, sum(left_grads))
        weights_grad = torch.stack([left_grad, torch.cat(right_grads, dim=-1)])
        return torch.cat(matrix_grads, dim=-1), weights_grad


@full_precision
def random_maclaurin(x: Tensor, weights: Tensor) -> Tensor:
    """Compute random Maclaurin features Σ_t ∏_s (W_s x_t): (B, C, N) → (B, n_out).

    With random signs as ``weights`` W (p, n_out, C), ⟨φ(x), φ(y)⟩ / n_out is an unbiased estimate
    of ⟨x, y⟩ᵖ (Kar & Karnick 2012). Differentiable with respect to both arguments.

    Example:
        >>> random_maclaurin(torch.rand(2, 8, 49), random_signs((2, 31, 8), seed=0)).shape
        torch.Size([2, 31])
    """
    _check_projections("random_maclaurin", "weights (p, n_out, C)", x, weights, ndim=3)
    _, n_channels, n_positions = x.shape
    if weights.shape[0] == 2 and n_channels < 2 * n_positions:  # fewer products than two projections of all positions
        return cast(Tensor, _BilinearForms.apply(_moment_sum(x), weights.to(x.dtype)))
    return cast(Tensor, _RandomMaclaurin.apply(x, weights.to(x.dtype)))


@full_precision
def kernel_features(x: Tensor, index: Tensor, sign: Tensor, coefficients: Tensor, n_out: int) -> Tensor:
    """Compute Taylor features of a kernel (Cui et al. 2017).

    They are [α₀, α₁·mean x, α₂·mean TS₂(x), …, α_p·mean TS_p(x)] for tensor sketches TS. For single
    positions their inner product estimates Σ_i α_i²·⟨x, y⟩ⁱ.

    Args:
        x: Features (B, C, N).
        index: Buckets (p, C) of p hashes.
        sign: Signs (p, C).
        coefficients: α (p + 1,).
        n_out: Size of the sketch of each order from 2 on.

    Returns:
        Vectors (B, 1 + C + (p − 1)·n_out).

    Example:
        >>> index, sign = random_hashes(3, in_channels=8, n_out=31, seed=0)
        >>> kernel_features(torch.rand(2, 8, 49), index, sign, torch.ones(4), 31).shape
        torch.Size([2, 71])
    """
    alpha = coefficients.to(x.dtype)
    sketches = tensor_sketches(x, index, sign, n_out) / x.shape[-1]
    constant = alpha[0].expand(x.shape[0], 1)
    return torch.cat([constant, alpha[1] * x.mean(dim=-1), (alpha[2:, None] * sketches).flatten(1)], dim=-1)


def _check_projections(who: str, what: str, x: Tensor, projections: Tensor, ndim: int = 2) -> None:
    check_feature_set(who, x)
    if projections.ndim != ndim or projections.shape[-1] != x.shape[1]:
        raise ValueError(f"{who}: expected {what} with C = {x.shape[1]}, got {tuple(projections.shape)}.")
